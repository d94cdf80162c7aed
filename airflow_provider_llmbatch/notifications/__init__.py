"""Notifiers: who is told, and how."""

from __future__ import annotations
