"""Readers: what is in a file is checked before it is decoded, and what cannot be read right is refused."""
