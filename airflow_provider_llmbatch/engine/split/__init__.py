"""Cut a source into chunks, and say beforehand what they will take."""

from __future__ import annotations

from airflow_provider_llmbatch.engine.split.estimate import estimate, explain
from airflow_provider_llmbatch.engine.split.plan import Strategy, plan

__all__ = ["Strategy", "estimate", "explain", "plan"]
