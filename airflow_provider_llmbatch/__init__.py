"""Finish ten thousand LLM calls from an Airflow DAG: limits, resume, validated rows, a bill."""

from __future__ import annotations

__version__ = "0.1.0"
