"""Operators: one thin class per step of the engine."""

from __future__ import annotations
