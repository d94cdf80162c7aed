"""The API of the console, as ``docs/console-api.md`` describes it."""

from __future__ import annotations
