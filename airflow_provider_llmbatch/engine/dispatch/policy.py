"""How long to try, and when to go elsewhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How long to try."""

    #: calls that count as tries, per item
    max_attempts: int = 5
    #: of these, how many may ask again for a reply that does not satisfy the schema
    max_repairs: int = 1
    #: seconds an item may wait, its calls not counted
    max_wait_s: float = 6 * 3600.0
    #: stop when the first so many finished items failed in the same way for good; 0 never does
    fail_fast: int = 20
    #: end, to go on later, when nothing can be sent for longer than so many seconds; None waits here
    defer_after_s: float | None = None
    #: end, to go on at once, after so many seconds; None goes on to the end
    max_runtime_s: float | None = None
    #: failures of so many different items in a row, over so many seconds, park an endpoint for everybody
    park_failures: int = 3
    park_over_s: float = 5.0
    #: seconds from one try of a parked endpoint or credential to the next
    probe_s: float = 60.0
    #: seconds for which one call has a credential alone that has not answered lately
    trial_s: float = 5.0
    #: whether a person has to open an endpoint again
    sticky: bool = False
    #: seconds of the past that the latency of an endpoint is taken from
    latency_span_s: float = 60.0
