"""Results leave as rows of a table: Parquet, CSV, a database. Streamed, a few rows at a time."""
