"""One token count for split, reserve and price."""

from __future__ import annotations
