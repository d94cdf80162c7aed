"""Join results, sources and graders: from what was answered under a rollout to the scores of a round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_provider_llmbatch.engine import manifests
from airflow_provider_llmbatch.engine.items import Item, Result
from airflow_provider_llmbatch.engine.results.answers import read_answers
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.engine.rollout.grader import Answer, Grader, scored
from airflow_provider_llmbatch.engine.rollout.scores import Scores
from airflow_provider_llmbatch.engine.rollout.sheet import Place, Sheet
from airflow_provider_llmbatch.engine.rollout.standing import Live, Standing
from airflow_provider_llmbatch.engine.rollout.steps import Steps
from airflow_provider_llmbatch.engine.rollout.variant import ARMS, Arm, mismatch_p, unit_of
from airflow_provider_llmbatch.engine.source import Source
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.errors import ConfigurationError, InputError

#: Opens the folder behind a result path, and the source behind a URI.
OpenFolder = Callable[[str], Folder]
OpenSource = Callable[[str], Source]


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """Items with references that both arms have answered."""

    items: Mapping[str, Item]
    base: Sequence[Answer]
    candidate: Sequence[Answer]
    #: where they lie
    places: Mapping[Arm, tuple[Place, ...]]
    #: where the items lie; empty for rows
    source: str


@dataclass(slots=True, kw_only=True)
class _Found:
    """Answers to production items."""

    answers: dict[Arm, list[Answer]] = field(default_factory=lambda: {arm: [] for arm in ARMS})
    used: list[str] = field(default_factory=list)
    #: by unit, the rate that it was assigned at and the arm it has
    split: dict[str, tuple[float, Arm]] = field(default_factory=dict)


def golden_of(
    base: Iterable[Manifest],
    candidate: Iterable[Manifest],
    items: Iterable[Item],
    open_folder: OpenFolder,
    *,
    source: str = "",
) -> Golden:
    """
    Read what both arms have answered of the golden set.

    :param base: what the dispatch of the base returned, and ``candidate`` likewise.
    :param source: where the items lie; empty for rows.
    :raises InputError: when a manifest is that of the other arm.
    """
    named = {item.id: item for item in items}
    made: dict[Arm, list[Manifest]] = {"base": list(base), "candidate": list(candidate)}

    def answers(arm: Arm) -> list[Answer]:
        found = []
        for manifest in made[arm]:
            for result in results(open_folder(manifest.result_path), chunks=[manifest.chunk]):
                if result.variant not in (arm, None):
                    raise InputError(
                        f"Item {result.id!r} in {manifest.result_path} has the variant {result.variant!r}; "
                        f"dispatch the golden set of this arm with prompt='rollout:<name>:{arm}'."
                    )
                item = named.get(result.id)
                if item is not None:
                    found.append(Answer(result=result, unit=result.id, reference=item.reference))
        return found

    return Golden(
        items=named,
        base=answers("base"),
        candidate=answers("candidate"),
        places={
            arm: tuple(Place(result_path=one.result_path, chunk=one.chunk) for one in found)
            for arm, found in made.items()
        },
        source=source,
    )


def graded(
    steps: Steps,
    *,
    golden: Golden | None,
    golden_graders: Sequence[Grader],
    live_graders: Sequence[Grader],
    judge: Scores | None,
    open_folder: OpenFolder,
    open_source: OpenSource,
) -> Sheet:
    """
    Grade what is new under a rollout.

    :param golden: None leaves metrics of the golden set ``not_run``.
    :param judge: what the judge has said of its pairs; None when it was not asked.
    :raises ConfigurationError: when two graders have one name.
    :raises StoreError: when results cannot be read.
    """
    names = [grader.name for grader in (*golden_graders, *live_graders)] + ([judge.metric] if judge else [])
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(
            f"{', '.join(twice)} is graded twice; a metric is one of the golden set or a live one."
        )
    standing = steps.standing()
    live = _live(standing, steps.notes(), open_folder, open_source) if live_graders else _Found()
    scores = [_golden_scores(grader, golden) for grader in golden_graders]
    scores += [scored(grader, *(live.answers[arm] for arm in ARMS), paired=False) for grader in live_graders]
    return Sheet(
        scores=tuple(scores + ([judge] if judge else [])),
        used=tuple(live.used),
        mismatch_p=_mismatch(live),
        golden=golden.places if golden else {},
        source=golden.source if golden else "",
    )


def _golden_scores(grader: Grader, golden: Golden | None) -> Scores:
    if golden is None:
        return Scores(
            metric=grader.name,
            paired=True,
            base={},
            candidate={},
            lower_is_better=grader.lower_is_better,
            failure="there is no golden set",
        )
    return scored(grader, golden.base, golden.candidate, paired=True)


def _mismatch(live: _Found) -> float | None:
    if not live.split:
        return None
    candidate = sum(arm == "candidate" for _, arm in live.split.values())
    expected = sum(rate for rate, _ in live.split.values())
    return mismatch_p(len(live.split) - candidate, candidate, expected)


def _live(
    standing: Standing, notes: Iterable[Live], open_folder: OpenFolder, open_source: OpenSource
) -> _Found:
    """Return the answers of dispatches that have ended; what runs, or is a pilot, waits for a later round."""
    found = _Found()
    for note in notes:
        folder = open_folder(note.result_path)
        manifest = manifests.stored(folder, note.chunk)
        if manifest is None or manifest.state != "complete" or manifest.pilot_of:
            continue
        found.used.append(note.key)
        for unit, result in _units(folder, note.chunk, standing.terms.unit, open_source):
            for arm in ARMS:
                if result.variant == arm:
                    found.answers[arm].append(Answer(result=result, unit=unit))
                    # Whoever began before a pause has been taken back from the candidate meanwhile.
                    if note.at >= standing.since:
                        found.split.setdefault(unit, (note.rate, arm))
    return found


def _units(folder: Folder, chunk: int, unit: str, open_source: OpenSource) -> Iterator[tuple[str, Result]]:
    """Yield the rows of a chunk, each with what its item was assigned with."""
    rows = results(folder, chunks=[chunk])
    if unit == "item" or unit.startswith("metadata."):
        for row in rows:
            yield unit_of(Item(index=row.index, id=row.id, metadata=row.metadata), unit), row
        return
    answers = read_answers(folder, chunk) or {}
    uri = str(answers.get("source"))
    if uri == "rows":
        raise InputError(
            f"The results in {folder.uri} are of rows that are gone, and the rollout assigns by {unit}; give "
            "the dispatch task a file, or open a rollout with unit='metadata.<name>'."
        )
    source = open_source(uri).rows(start=answers["start"], stop=answers["stop"])
    items = {row.index: row.item for row in source if isinstance(row.item, Item)}
    for row in rows:
        if row.index in items:
            yield unit_of(items[row.index], unit), row
