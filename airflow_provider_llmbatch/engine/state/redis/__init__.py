"""State in Redis: for workers on several hosts."""

from __future__ import annotations

from airflow_provider_llmbatch.engine.state.redis.connect import connect
from airflow_provider_llmbatch.engine.state.redis.state import RedisState

__all__ = ["RedisState", "connect"]
