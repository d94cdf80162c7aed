"""From a request to a reply: take a grant, send, settle, decide what a failure means."""
