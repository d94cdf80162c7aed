"""Stop before paying for the rest when the first items all fail in one way that no retry helps."""

from __future__ import annotations

from airflow_provider_llmbatch.engine.items import Outcome, Result


class FailFast:
    """
    Watches the first finished items.

    :param after: how many must fail alike; 0 never stops.
    """

    def __init__(self, after: int) -> None:
        self._after = after
        self._seen = 0
        self._kind: tuple[Outcome, str, str | None] | None = None

    def reason(self, result: Result) -> str | None:
        """Take a finished item into account; return why to stop, if it is time."""
        if self._seen >= self._after or result.outcome is Outcome.UNSENT:
            return None
        error = result.error
        kind = (result.outcome, error.kind, error.code) if error is not None else None
        if result.outcome.is_good or not result.outcome.is_final or self._kind not in (None, kind):
            self._seen = self._after
            return None
        self._kind = kind
        self._seen += 1
        if self._seen < self._after or error is None:
            return None
        return (
            f"The first {self._after} finished items all ended {result.outcome}: {error.message} Nothing "
            "more was sent; mend the cause, or set fail_fast=0."
        )
