"""Results on storage: append-once parts, the ledger, what a resume finds. Storage is the truth."""
