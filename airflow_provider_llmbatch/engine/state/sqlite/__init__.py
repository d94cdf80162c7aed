"""State in one SQLite file: the default, for all processes of one host."""

from __future__ import annotations

from airflow_provider_llmbatch.engine.state.sqlite.state import SqliteState

__all__ = ["SqliteState"]
