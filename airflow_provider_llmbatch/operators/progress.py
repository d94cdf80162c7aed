"""How far a run is: what its tasks say in the shared state, and what those have stored that say nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from airflow_provider_llmbatch.errors import InputError
from airflow_provider_llmbatch.operators import surroundings
from airflow_provider_llmbatch.operators.bridge import Bridge
from airflow_provider_llmbatch.operators.places import Note, read_note, run_folder, task_folder
from airflow_provider_llmbatch.operators.storage import filesystem_of, open_folder
from airflow_provider_llmbatch.settings import Settings

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.state.protocols import Standing
    from airflow_provider_llmbatch.engine.summary import Manifest, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one mapped instance, or one chunk that has ended, says of itself."""

    #: map index, or number of the chunk where only its manifest is there
    number: int
    #: ``running``, ``stopped`` or ``complete``
    state: str
    items: int
    done: int
    #: items by outcome; those of earlier tries are not among them
    counts: Mapping[str, int]
    resumed: int
    tokens: Mapping[str, int]
    usd: Decimal
    #: whether some calls have no known price
    unpriced: bool
    #: items per second; 0 when nothing is sent
    rate: float = 0.0
    #: what the next call waits for; "" when it waits for nothing
    waits_for: str = ""
    #: how full each limit and budget is, from 0 to 1
    use: Mapping[str, float] = field(default_factory=dict)
    #: Unix seconds: when this was so
    at: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """How far a task is, all of its mapped instances together."""

    task_id: str
    #: which mapped instance has a folder of its own; -1 when all share one
    map_index: int
    parts: tuple[Part, ...]
    #: items of the plan; None without one
    planned_items: int | None = None
    #: US dollars that the plan expects; None when not known
    planned_usd: Decimal | None = None
    #: US dollars that may be spent; None without such a budget
    budget_usd: Decimal | None = None

    @property
    def items(self) -> int:
        """Items of all parts, those included that have not begun."""
        return max(self.planned_items or 0, sum(part.items for part in self.parts))

    @property
    def eta_s(self) -> float | None:
        """Seconds until all is done at the rate of now; None when nothing is sent."""
        rate = sum(part.rate for part in self.parts if part.state == "running")
        return (self.items - sum(part.done for part in self.parts)) / rate if rate else None


def dags_with_results(settings: Settings) -> list[str]:
    """
    Return the DAGs that have results below ``results_path``.

    :raises StoreError: when that cannot be listed.
    """
    from airflow_provider_llmbatch.engine.results.tree import names_in

    place = settings.results_path
    names = names_in(place, filesystem=filesystem_of(place))
    return [unquote(name) for name in names if not name.startswith("~")]


def progress_of(settings: Settings, dag_id: str, run_id: str) -> list[TaskProgress]:
    """
    Return how far each task of a run is that sends items.

    :raises StoreError: when storage or state cannot be reached.
    """
    found = list(_notes(settings, dag_id, run_id))
    plans = [_plan(note) for _, _, note in found]
    owners = [
        [f"{dag_id}/{run_id}/{task}/{number}" for number in _numbers(index, plan)]
        for (task, index, _), plan in zip(found, plans, strict=True)
    ]
    standings = _standings(settings, [owner for each in owners for owner in each])
    return [
        TaskProgress(
            task_id=task,
            map_index=index,
            parts=tuple(_parts(note, [standings[owner] for owner in mine if owner in standings])),
            planned_items=plan.items if plan else None,
            planned_usd=plan.estimate.usd if plan else None,
            budget_usd=Decimal(note.budget_usd) if note.budget_usd else None,
        )
        for (task, index, note), plan, mine in zip(found, plans, owners, strict=True)
    ]


def _notes(settings: Settings, dag_id: str, run_id: str) -> Iterator[tuple[str, int, Note]]:
    """Yield task, map index and note of what has begun to send."""
    from airflow_provider_llmbatch.engine.results.tree import names_in

    own = run_folder(settings.results_path, dag_id, run_id)
    files = filesystem_of(own)
    for task in map(unquote, names_in(own, filesystem=files)):
        place = task_folder(settings.results_path, dag_id, run_id, task)
        mapped = (int(name) for name in names_in(place, filesystem=files) if name.isdecimal())
        for index in (-1, *sorted(mapped)):
            folder = open_folder(
                task_folder(settings.results_path, dag_id, run_id, task, index), read_only=True
            )
            if (note := read_note(folder)) is not None:
                yield task, index, note


def _plan(note: Note) -> Plan | None:
    from airflow_provider_llmbatch.operators.batch import read_plan

    try:
        return None if note.chunk is None else read_plan(note.chunk)
    except InputError:
        return None


def _numbers(index: int, plan: Plan | None) -> Sequence[int]:
    """Return the map indexes that may share a folder."""
    return [index] if index >= 0 or plan is None else [-1, *range(len(plan.chunks))]


def _standings(settings: Settings, owners: Iterable[str]) -> dict[str, Standing]:
    async def main() -> dict[str, Standing]:
        state = surroundings.open_state(settings)
        try:
            found = [(owner, await state.standing(owner)) for owner in owners]
            return {owner: standing for owner, standing in found if standing is not None}
        finally:
            await state.close()

    return Bridge[dict[str, "Standing"]]().run(main)


def _parts(note: Note, standings: Sequence[Standing]) -> Iterator[Part]:
    """Yield what is told, or else what is stored."""
    from airflow_provider_llmbatch.engine.manifests import stored
    from airflow_provider_llmbatch.engine.results import names

    if standings:
        yield from map(_told, standings)
        return
    folder = open_folder(note.result_path, read_only=True)
    chunks = sorted({chunk for chunk in map(names.chunk_of, folder.names()) if chunk is not None})
    yield from (_ended(manifest) for chunk in chunks if (manifest := stored(folder, chunk)) is not None)


def _told(standing: Standing) -> Part:
    figures: dict[str, Any] = dict(standing.figures)
    return Part(
        number=int(standing.owner.rpartition("/")[2]),
        state=figures["state"],
        items=standing.items,
        done=standing.done,
        counts=figures["counts"],
        resumed=figures["resumed"],
        tokens=figures["tokens"],
        usd=Decimal(figures["usd"]),
        unpriced=figures["unpriced"],
        rate=figures["rate"] if figures["state"] == "running" else 0.0,
        waits_for=figures["waits_for"],
        use=figures.get("use", {}),
        at=standing.at,
    )


def _ended(manifest: Manifest) -> Part:
    usage = manifest.usage
    counts = Counter({str(outcome): count for outcome, count in manifest.counts.items()})
    use = {"the limit that binds": manifest.limits["use"]} if "use" in manifest.limits else {}
    return Part(
        number=manifest.chunk,
        state=manifest.state,
        items=manifest.items,
        done=sum(count for outcome, count in manifest.counts.items() if outcome.is_final),
        counts=counts,
        # A manifest counts the items of earlier tries among the outcomes.
        resumed=0,
        tokens={
            **{"in": usage.prompt, "cached": usage.cached},
            **{"out": usage.completion, "reasoning": usage.reasoning},
        },
        usd=manifest.cost.usd,
        unpriced=manifest.cost.unpriced,
        use=use,
        at=manifest.ended_at,
        reason=manifest.reason,
    )
