"""Prompt versions on trial: who gets which, what came of it, and whether it goes on."""
