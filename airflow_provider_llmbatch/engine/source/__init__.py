"""JSONL, CSV, Parquet, rows in memory and rows of a database become one stream of items."""

from __future__ import annotations

from airflow_provider_llmbatch.engine.source.files import open_source
from airflow_provider_llmbatch.engine.source.row import MAX_ROW_BYTES, Row, Source
from airflow_provider_llmbatch.engine.source.rows import RowsSource

__all__ = ["MAX_ROW_BYTES", "Row", "RowsSource", "Source", "open_source"]
