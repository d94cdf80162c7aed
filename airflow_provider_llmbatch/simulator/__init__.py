"""An OpenAI-compatible server with real admission control and scripted faults, to rehearse without paying."""
