"""JSONL, CSV, Parquet and rows in memory become one stream of items."""

from __future__ import annotations

from airflow_provider_llmbatch.engine.source.files import open_source
from airflow_provider_llmbatch.engine.source.row import MAX_ROW_BYTES, Row, Source

__all__ = ["MAX_ROW_BYTES", "Row", "Source", "open_source"]
