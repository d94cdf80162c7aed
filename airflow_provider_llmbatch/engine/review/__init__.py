"""Tickets, decisions and their log, and what becomes of an item. Storage is the truth."""

from __future__ import annotations
