"""Wire formats: one module per API, encoding requests and decoding whatever comes back."""
