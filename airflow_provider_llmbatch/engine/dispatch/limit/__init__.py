"""The process's side of the shared limits: who waits here, and for what."""
