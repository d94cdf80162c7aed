"""
What a run promises and what it delivers: :class:`Plan` and :class:`Manifest`, with their JSON forms.

Standard library only. The manifest is an XCom value and stays below :data:`MANIFEST_BYTES`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from airflow_provider_llmbatch.engine.items import SCHEMA_VERSION, Chunk, Cost, Outcome, PromptRef, Usage
from airflow_provider_llmbatch.errors import InputError

#: Largest manifest in bytes of JSON, so that any XCom backend takes it.
MANIFEST_BYTES = 8 * 1024

State = Literal["complete", "stopped", "running"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Money and time that a plan expects."""

    #: US dollars: inputs plus expected, least and largest outputs; None when a price is unknown
    usd: Decimal | None = None
    usd_low: Decimal | None = None
    usd_high: Decimal | None = None
    #: seconds at the limits, and the name of the limit that binds (``""``: none set)
    seconds: float = 0.0
    binds: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a source is cut into chunks, and what that will take."""

    source: str
    items: int
    #: rows that are no items; they are part of ``items``
    bad_items: int
    prompt: PromptRef
    model: str
    prompt_tokens: int
    output_tokens: int
    chunks: tuple[Chunk, ...]
    estimate: Estimate = Estimate()

    def to_json(self) -> dict[str, Any]:
        """Return the plan as strict JSON values."""
        return {"schema_version": SCHEMA_VERSION, **_plain(dataclasses.asdict(self))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """
        Read what :meth:`to_json` wrote.

        :raises InputError: for another schema version or a foreign document.
        """
        _same_version("plan", data)
        try:
            estimate = data["estimate"]
            money = {k: _decimal(estimate[k]) for k in ("usd", "usd_low", "usd_high")}
            return cls(
                source=data["source"],
                items=data["items"],
                bad_items=data["bad_items"],
                prompt=PromptRef(**data["prompt"]),
                model=data["model"],
                prompt_tokens=data["prompt_tokens"],
                output_tokens=data["output_tokens"],
                chunks=tuple(Chunk(**c) for c in data["chunks"]),
                estimate=Estimate(seconds=estimate["seconds"], binds=estimate["binds"], **money),
            )
        except (KeyError, TypeError) as error:
            raise InputError(f"This is no plan of ours: {error!r}. Run the split task again.") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The small account of a dispatch: what it did, what it used, where the rows are."""

    result_path: str
    state: State
    #: items in the dispatched part of the source; the counts add up to it
    items: int
    counts: Mapping[Outcome, int]
    #: items that were answered by earlier tries, and so not sent in this one
    resumed: int = 0
    usage: Usage = Usage()
    cost: Cost = Cost()
    #: US dollars that reuse saved
    saved_usd: Decimal = Decimal(0)
    #: ``granted_requests``, ``granted_tokens``, ``waited_s``, ``use`` (share of the binding limit, 0 to 1)
    limits: Mapping[str, float] = field(default_factory=dict)
    #: of the answered calls: ``p50``, ``p95``, ``p99``, ``max`` in milliseconds
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    #: calls that may have been charged without leaving a reply
    possible_double_paid: int = 0
    prompt: PromptRef | None = None
    model: str = ""
    schema_digest: str = ""
    #: SHA-256 over what the results answer: source rows, prompt, model, params, schema
    fingerprint: str = ""
    chunk: int = 0
    #: prompt tokens that the service counted, over those that we did
    count_drift: float = 1.0
    started_at: float = 0.0
    ended_at: float = 0.0
    #: why it stopped, when it did, and whether trying again unchanged can help
    reason: str = ""
    retryable: bool = False
    #: seconds after which it makes sense to go on, when known
    retry_after_s: float | None = None
    #: what most failed calls had in common, and how many there were
    commonest_error: str = ""
    #: items of the whole part, where only a pilot of it was dispatched; 0 elsewhere
    pilot_of: int = 0

    @property
    def good(self) -> int:
        """Items with a usable output."""
        return sum(n for outcome, n in self.counts.items() if outcome.is_good)

    @property
    def rest_usd(self) -> Decimal | None:
        """US dollars that the items after a pilot will cost, at as much each; None when not known."""
        paid = self.items - self.counts.get(Outcome.UNSENT, 0)
        if not self.pilot_of or not paid or self.cost.unpriced:
            return None
        return self.cost.usd / paid * (self.pilot_of - self.items)

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as strict JSON values of at most :data:`MANIFEST_BYTES`."""
        data = {"schema_version": SCHEMA_VERSION, **_plain(dataclasses.asdict(self))}
        if self.pilot_of:
            data["rest_usd"] = _plain(self.rest_usd)
        size = len(json.dumps(data))
        if size > MANIFEST_BYTES:
            raise InputError(f"The manifest takes {size} bytes, over {MANIFEST_BYTES}; shorten result_path.")
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        """
        Read what :meth:`to_json` wrote.

        :raises InputError: for another schema version or a foreign document.
        """
        _same_version("manifest", data)
        try:
            values = {f.name: data[f.name] for f in dataclasses.fields(cls)}
            values["counts"] = {Outcome(k): v for k, v in values["counts"].items()}
            values["usage"] = Usage(**values["usage"])
            values["cost"] = Cost(usd=Decimal(data["cost"]["usd"]), unpriced=data["cost"]["unpriced"])
            values["saved_usd"] = Decimal(values["saved_usd"])
            values["prompt"] = PromptRef(**values["prompt"]) if values["prompt"] else None
            return cls(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"This is no manifest of a dispatch task: {error!r}.") from error


def total(counts: Iterable[Mapping[Outcome, int]]) -> dict[Outcome, int]:
    """Add up counts by outcome."""
    summed: dict[Outcome, int] = {}
    for one in counts:
        for outcome, n in one.items():
            summed[outcome] = summed.get(outcome, 0) + n
    return summed


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value


def _decimal(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def _same_version(what: str, data: Any) -> None:
    version = data.get("schema_version") if isinstance(data, Mapping) else None
    if version != SCHEMA_VERSION:
        raise InputError(
            f"Expected a {what} of schema_version {SCHEMA_VERSION}, got {version!r}. "
            "Run the task that wrote it again with this version of the package."
        )
