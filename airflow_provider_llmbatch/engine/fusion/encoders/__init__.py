"""Encoders: one for each kind of modality, from a device tensor to one vector a record."""
