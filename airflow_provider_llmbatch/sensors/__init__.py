"""Sensors: what other DAGs wait for."""

from __future__ import annotations
