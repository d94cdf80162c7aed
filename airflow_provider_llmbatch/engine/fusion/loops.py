"""The loop over a source: windows of records in order, each stored whole with its account."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors.torch import save

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion import store as names
from airflow_provider_llmbatch.engine.fusion.examine import Verdict
from airflow_provider_llmbatch.engine.fusion.graph import Fused
from airflow_provider_llmbatch.engine.fusion.opening import Opened
from airflow_provider_llmbatch.engine.fusion.pipeline import Step
from airflow_provider_llmbatch.engine.fusion.records import Record
from airflow_provider_llmbatch.engine.fusion.spec import Spec
from airflow_provider_llmbatch.errors import InputError, StoreError

#: Tells the task what happens: one JSON object.
Emit = Callable[[Mapping[str, Any]], None]


class TooManyBadError(InputError):
    """More records are quarantined than the run allows; what is good is stored."""


@dataclass(slots=True)
class Account:
    """What has happened to records so far."""

    total: int = 0
    windows: int = 0
    ok: int = 0
    quarantined: int = 0
    resumed: int = 0
    #: of usable records, by modality: how many lack it
    missing: Counter[str] = field(default_factory=Counter)
    #: of usable records, by which modalities they have, as bits in the schema's order
    patterns: Counter[str] = field(default_factory=Counter)
    #: codes of all that is wrong, also where the record goes on without the modality
    codes: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    bytes: int = 0

    def add(self, window: Mapping[str, Any], *, resumed: bool) -> None:
        """Count a window."""
        self.windows += 1
        self.ok += window["ok"]
        self.quarantined += window["quarantined"]
        self.resumed += window["stop"] - window["start"] if resumed else 0
        self.missing.update(window["missing"])
        self.patterns.update(window["patterns"])
        self.codes.update(each["code"] for each in window["bad"])
        self.warnings.update(window["warnings"])
        self.bytes += window["bytes"]


def do_windows(opened: Opened, emit: Emit) -> Account:
    """
    Embed or predict all records of a source, store them, and return the account.

    :raises TooManyBadError: when more than ``max_bad_fraction`` is quarantined.
    :raises StoreError: when results cannot be stored.
    """
    account = Account(total=opened.total)
    progress = Progress(emit, opened.clocks, opened.total, processes=opened.team.size)
    for number, window in _windows(opened, account):
        account.add(_do_window(opened, number, window), resumed=False)
        progress.tell(account)
        _refuse_bad(opened.spec, account)
    account = _account_of_all(opened, account)
    _refuse_bad(opened.spec, account)
    if opened.team.leads:
        opened.store.put(names.QUARANTINE, b"".join(_quarantine(opened, account.windows)))
    return account


def _account_of_all(opened: Opened, own: Account) -> Account:
    """Return the account of what all processes have done, when they have."""
    if opened.team.size == 1:
        return own
    windows, resumed = opened.team.total(torch.tensor([own.windows, own.resumed])).tolist()
    whole = Account(total=opened.total)
    for number in range(windows):
        whole.add(_stored(opened, number), resumed=False)
    whole.resumed = resumed
    return whole


def _windows(opened: Opened, account: Account) -> Iterator[tuple[int, Sequence[Record]]]:
    """Yield the windows of this process that are not done; take those that are into the account."""
    size = opened.spec.chunk_records
    for number, window in _cut(opened, size):
        if not opened.team.has(number):
            continue
        earlier = opened.store.done(number) if opened.spec.on_existing == "resume" else None
        if earlier is None:
            yield number, window
        else:
            account.add(earlier, resumed=True)


def _quarantine(opened: Opened, windows: int) -> Iterator[bytes]:
    """Yield the lines of what is wrong, window by window as they are stored."""
    for number in range(windows):
        yield names.lines(_stored(opened, number)["bad"])


def _stored(opened: Opened, number: int) -> dict[str, Any]:
    """Return the account of a window that is done."""
    window = opened.store.done(number)
    if window is None:
        raise StoreError(f"{names.window_name(number)} is gone or damaged; run the task again.")
    return window


def _cut(opened: Opened, size: int) -> Iterator[tuple[int, list[Record]]]:
    records = opened.records()
    for number in itertools.count():
        window = list(itertools.islice(records, size))
        if not window:
            return
        yield number, window


def _do_window(opened: Opened, number: int, window: Sequence[Record]) -> dict[str, Any]:
    """Compute and store a window, and return its account."""
    size = opened.plan.batch
    batches = [window[start : start + size] for start in range(0, len(window), size)]
    steps = list(opened.pipeline.steps(batches))
    began = opened.clocks.now()
    content = _Window(opened, number, window[0].index)
    for step in steps:
        content.take(step)
    account = content.stored()
    opened.pipeline.timings.write += opened.clocks.now() - began
    return account


class _Window:
    """Rows and embeddings of a window."""

    def __init__(self, opened: Opened, number: int, start: int) -> None:
        self._opened, self._number, self._start = opened, number, start
        self._names = opened.spec.schema.names
        self._rows: list[dict[str, Any]] = []
        self._fused: list[Fused] = []
        self._members: dict[str, list[int]] = {name: [] for name in self._names}
        self._bad: list[dict[str, Any]] = []
        self._warnings: Counter[str] = Counter()
        self._seen = self._lost = self._bytes = self._placed = 0

    def take(self, step: Step) -> None:
        """Add a batch."""
        self._bytes += step.bytes
        usable = [verdict for verdict in step.verdicts if verdict.quarantined is None]
        for verdict in step.verdicts:
            self._seen += 1
            self._warnings.update(verdict.warnings.values())
            self._tell_bad(verdict)
        if step.fused is None:
            return
        self._fused.append(step.fused)
        for place, verdict in enumerate(usable):
            for name in verdict.present:
                self._members[name].append(self._placed + place)
            self._row(verdict, step.fused, place)
        self._placed += len(usable)

    def _tell_bad(self, verdict: Verdict) -> None:
        record = verdict.record
        for name, (code, detail) in verdict.bad.items():
            self._bad.append(
                {"id": record.id, "index": record.index, "modality": name, "code": code, "detail": detail}
            )
        if verdict.quarantined is not None:
            self._lost += 1
            if verdict.quarantined not in [code for code, _ in verdict.bad.values()]:
                whole = {"modality": "", "code": verdict.quarantined, "detail": ""}
                self._bad.append({"id": record.id, "index": record.index, **whole})

    def _row(self, verdict: Verdict, fused: Fused, place: int) -> None:
        record = verdict.record
        present = [n for n, there in zip(self._names, fused.present[place].tolist(), strict=True) if there]
        for name in sorted(set(verdict.present) - set(present)):
            lost = {"modality": name, "code": "rec.non_finite", "detail": ""}
            self._bad.append({"id": record.id, "index": record.index, **lost})
        row: dict[str, Any] = {"id": record.id, "index": record.index, "present": present}
        if not present:
            # The numbers of the record are those of nobody.
            self._lost += 1
            row["quarantined"] = "rec.non_finite"
        elif self._opened.spec.mode in ("predict", "evaluate"):
            row["scores"] = _scores(fused.outputs[place])
            shares = fused.attention[place].tolist()
            row["attention"] = {n: round(s, 6) for n, s in zip(("", *self._names), shares, strict=True)}
        self._rows.append(row)

    def stored(self) -> dict[str, Any]:
        """Store the parts, then the account of the window, and return it."""
        store, number = self._opened.store, self._number
        parts = {}
        name = names.part_name(number, "jsonl")
        parts[name] = store.put(name, names.lines(self._rows))
        name = names.part_name(number, "safetensors")
        parts[name] = store.put(name, save(self._tensors()))
        good = [row for row in self._rows if row["present"]]
        bits = ["".join("01"[name in row["present"]] for name in self._names) for row in good]
        account = {
            "window": number,
            "start": self._start,
            "stop": self._start + self._seen,
            "parts": parts,
            "ok": len(good),
            "quarantined": self._lost,
            "missing": {n: lacking for n in self._names if (lacking := _lacking(good, n))},
            "patterns": dict(sorted(Counter(bits).items())),
            "warnings": dict(sorted(self._warnings.items())),
            "bytes": self._bytes,
            "bad": self._bad,
        }
        store.put(names.window_name(number), json.dumps(account).encode())
        return account

    def _tensors(self) -> dict[str, torch.Tensor]:
        """Return embeddings of rows in their order, and of each modality the vectors with their rows."""
        if not self._fused:
            return {"embedding": torch.zeros(0, 0)}
        found = {"embedding": torch.cat([each.embedding for each in self._fused]).contiguous()}
        for name in self._names:
            vectors = [each.vectors[name] for each in self._fused if name in each.vectors]
            if vectors:
                found[f"vectors.{name}"] = torch.cat(vectors).contiguous()
                found[f"rows.{name}"] = torch.tensor(self._members[name], dtype=torch.int32)
        return found


class Progress:
    """
    Tells how far a run is, at most every two seconds.

    :param processes: how many work on it; the others are taken to be as far as this one.
    """

    def __init__(
        self, emit: Emit, clocks: Clocks, total: int, *, every_s: float = 2.0, processes: int = 1
    ) -> None:
        self._emit, self._now, self._total, self._every = emit, clocks.now, total, every_s
        self._processes = processes
        self._began = self._told = clocks.now()

    def tell(self, account: Account) -> None:
        """Say it when it is time to."""
        now = self._now()
        done = min(self._total, (account.ok + account.quarantined) * self._processes)
        fresh = max(0, done - account.resumed * self._processes)
        if now - self._told < self._every and done < self._total:
            return
        self._told = now
        rate = fresh / max(now - self._began, 1e-6)
        self._emit(
            {
                "event": "progress",
                "done": done,
                "total": self._total,
                "quarantined": account.quarantined,
                "per_s": round(rate, 3),
                "eta_s": round((self._total - done) / rate, 1) if rate else None,
            }
        )


def _scores(outputs: torch.Tensor) -> list[float]:
    """Return probabilities: of yes for one output, of each class for several."""
    values = outputs.sigmoid() if len(outputs) == 1 else outputs.softmax(dim=0)
    return [round(float(value), 6) for value in values]


def _lacking(rows: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(name not in row["present"] for row in rows)


def _refuse_bad(spec: Spec, account: Account) -> None:
    """Stop as soon as the share that may be bad is passed, whatever else comes."""
    allowed = 0 if spec.on_bad_input == "fail" else spec.max_bad_fraction * account.total
    if account.quarantined > allowed:
        most = ", ".join(f"{code} ({count})" for code, count in account.codes.most_common(3))
        words = (
            "on_bad_input is fail"
            if spec.on_bad_input == "fail"
            else f"max_bad_fraction={spec.max_bad_fraction:g} allows {int(allowed)}"
        )
        raise TooManyBadError(
            f"{account.quarantined} of {account.total} records are quarantined, and {words}. Most frequent: "
            f"{most}. What is good so far is stored; mend the input, or raise max_bad_fraction."
        )
