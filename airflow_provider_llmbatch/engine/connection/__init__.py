"""What a connection says about an endpoint, free of Airflow: address, credentials, limits, prices."""

from __future__ import annotations

from airflow_provider_llmbatch.engine.connection.parse import parse
from airflow_provider_llmbatch.engine.connection.secret import Secret
from airflow_provider_llmbatch.engine.connection.settings import (
    Budget,
    ConnectionSettings,
    Credential,
    LimitRule,
)

__all__ = ["Budget", "ConnectionSettings", "Credential", "LimitRule", "Secret", "parse"]
