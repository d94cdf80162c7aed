"""From records to what the model says of them: decoded ahead by threads, computed in fixed batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import NDArray

from airflow_provider_llmbatch.engine.fusion.batch import Batch, Ring, collate
from airflow_provider_llmbatch.engine.fusion.errors import FusionInputError
from airflow_provider_llmbatch.engine.fusion.examine import Examiner, Rules, Verdict
from airflow_provider_llmbatch.engine.fusion.graph import Fused, FusionGraph
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.records import Record

#: Batches that are decoded ahead of the one that is computed.
AHEAD = 2

Arrays = dict[str, NDArray[Any]]


class OutOfMemoryError(Exception):
    """Half a batch is still more than the device holds."""


@dataclass(slots=True)
class Timings:
    """Seconds: of all decoding threads together, of copies, of computing, of writing."""

    decode: float = 0.0
    h2d: float = 0.0
    compute: float = 0.0
    write: float = 0.0


@dataclass(slots=True, kw_only=True)
class Step:
    """A batch that is done."""

    verdicts: list[Verdict]
    #: of the verdicts that are not quarantined, in their order; None when there are none
    fused: Fused | None
    #: bytes that moved
    bytes: int = 0


@dataclass(slots=True, kw_only=True)
class Pipeline:
    """
    Runs records through the model.

    :param now: seconds that only go forward.
    """

    graph: FusionGraph
    plan: Plan
    examiner: Examiner
    rules: Rules
    now: Callable[[], float]
    timings: Timings = field(default_factory=Timings)
    #: whether memory ran out and batches are computed by halves since
    halved: bool = False
    _ring: Ring = field(init=False)

    def __post_init__(self) -> None:
        """Make the staging buffers."""
        self._ring = Ring(self.plan.arenas, pinned=self.plan.pinned)

    def steps(self, batches: Iterable[Sequence[Record]]) -> Iterator[Step]:
        """Yield each batch of records in turn; later ones are decoded meanwhile."""
        pool = ThreadPoolExecutor(self.plan.decoders, thread_name_prefix="decode")
        waiting: deque[list[Future[tuple[Verdict, Arrays, float]]]] = deque()
        try:
            for records in batches:
                waiting.append([pool.submit(self._decoded, record) for record in records])
                if len(waiting) > AHEAD:
                    yield self._step(waiting.popleft())
            while waiting:
                yield self._step(waiting.popleft())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _decoded(self, record: Record) -> tuple[Verdict, Arrays, float]:
        """Examine a record and decode what can be used; what breaks only now is dropped like the rest."""
        began = self.now()
        verdict = self.examiner.look(record)
        arrays: Arrays = {}
        if verdict.quarantined is None:
            for name, decode in list(verdict.present.items()):
                try:
                    arrays[name] = decode()
                except FusionInputError as error:
                    verdict.drop(name, error, self.rules)
        # What decoding holds on to, such as headers, is not needed any more.
        verdict.present = dict.fromkeys(verdict.present, _decoded_already)
        return verdict, arrays, self.now() - began

    def _step(self, futures: list[Future[tuple[Verdict, Arrays, float]]]) -> Step:
        found = [future.result() for future in futures]
        self.timings.decode += sum(took for _, _, took in found)
        verdicts = [verdict for verdict, _, _ in found]
        usable = [arrays for verdict, arrays, _ in found if verdict.quarantined is None]
        if not usable:
            return Step(verdicts=verdicts, fused=None)
        fused, moved = self._computed(usable)
        return Step(verdicts=verdicts, fused=fused, bytes=moved)

    def _computed(self, records: list[Arrays]) -> tuple[Fused, int]:
        if not self.halved:
            try:
                return self._run(records)
            except (torch.OutOfMemoryError, MemoryError):
                self.halved = True
        middle = (len(records) + 1) // 2
        try:
            halves = [self._run(half) for half in (records[:middle], records[middle:]) if half]
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise OutOfMemoryError from error
        return _joined([fused for fused, _ in halves]), sum(moved for _, moved in halves)

    def _run(self, records: list[Arrays]) -> tuple[Fused, int]:
        began = self.now()
        batch = collate(self.graph.schema, records, self._ring.take())
        there = self._to_device(batch)
        moved = self.now()
        with torch.inference_mode():
            fused = _on_host(self.graph(there, self.plan))
        self.timings.h2d += moved - began
        self.timings.compute += self.now() - moved
        return fused, batch.bytes

    def _to_device(self, batch: Batch) -> Batch:
        device = torch.device(self.plan.device)
        if device.type == "cpu":
            return batch.to_device(device)
        event = torch.cuda.Event()
        there = batch.to_device(device, event=event)
        event.record()
        return there


def _decoded_already() -> NDArray[Any]:
    raise RuntimeError("an input is decoded once")


def _on_host(fused: Fused) -> Fused:
    return Fused(
        embedding=fused.embedding.float().cpu(),
        outputs=fused.outputs.float().cpu(),
        attention=fused.attention.float().cpu(),
        present=fused.present.cpu(),
        vectors={name: value.float().cpu() for name, value in fused.vectors.items()},
        non_finite=fused.non_finite,
    )


def _joined(parts: list[Fused]) -> Fused:
    def together(name: str) -> torch.Tensor:
        return torch.cat([getattr(part, name) for part in parts])

    names = {name for part in parts for name in part.vectors}
    lost = {name for part in parts for name in part.non_finite}
    return Fused(
        embedding=together("embedding"),
        outputs=together("outputs"),
        attention=together("attention"),
        present=together("present"),
        vectors={n: torch.cat([p.vectors[n] for p in parts if n in p.vectors]) for n in sorted(names)},
        non_finite={name: sum(part.non_finite.get(name, 0) for part in parts) for name in sorted(lost)},
    )
