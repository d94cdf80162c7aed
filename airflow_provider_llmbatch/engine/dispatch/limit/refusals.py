"""Why a request gets no grant."""

from __future__ import annotations

from airflow_provider_llmbatch.errors import LLMBatchError


class LimitRefusedError(LLMBatchError):
    """
    Waiting cannot help: the named meter will never have room.

    :param meter: key of the meter.
    """

    def __init__(self, meter: str) -> None:
        super().__init__(f"No room in {meter}, now or later.")
        self.meter = meter


class WaitedTooLongError(LLMBatchError):
    """
    There was no room in the time that the request may wait.

    :param waits_for: what it waited for last.
    """

    def __init__(self, waits_for: str) -> None:
        super().__init__(f"There was no room in {waits_for} in time.")
        self.waits_for = waits_for


class SentAwayError(LLMBatchError):
    """There is another way to go: around what is parked, full, or not wanted any more."""
