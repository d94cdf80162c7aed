"""Reviews of real runs: what operator and API do, without Airflow."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.again import Again
from airflow_provider_llmbatch.engine.deciding import Hands, carry_out, decided_places
from airflow_provider_llmbatch.engine.items import Chunk, Outcome, Result
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.prompt import Prompt, inline_prompt
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.engine.review.choose import read_rules
from airflow_provider_llmbatch.engine.review.decision import Person, Wish
from airflow_provider_llmbatch.engine.review.queue import Queue
from airflow_provider_llmbatch.engine.review.rounds import Round
from airflow_provider_llmbatch.engine.review.terms import Terms
from airflow_provider_llmbatch.engine.reviewing import open_round, portion_of
from airflow_provider_llmbatch.engine.run import run
from airflow_provider_llmbatch.engine.state.protocols import State
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.engine.summary import Manifest
from tests.engine.rehearsal import Recorder

ANN = Person(id="1", name="ann")
BAD = frozenset(outcome for outcome in Outcome if outcome.is_reviewable)
NOW = 1_800_000_000.0


@dataclass
class Review:
    """The review of a job's results."""

    job: Job
    manifest: Manifest
    folder: Path
    notes: list[str] = field(default_factory=list)
    #: None: each round has one of its own
    state: State | None = None

    def __post_init__(self) -> None:
        self.queue = Queue(open_folder(str(self.folder)))
        self.queue.refresh()

    def open(self, *, uncertain: str | None = None, sample: float = 0.0, **terms: Any) -> Round:
        portions = [portion_of(self.job, self.manifest)]
        latest = self.queue.latest
        opened = open_round(
            self.queue,
            portions,
            read_rules(BAD, uncertain if latest is None else None, sample if latest is None else 0.0),
            Terms(
                **{
                    "schema": self.job.schema.document,
                    "models": ("other-model",),
                    "prompts": ("inline@2",),
                    **terms,
                }
            ),
            only=None if latest is None else decided_places(latest, portions),
            occasion="once",
            at=NOW,
            note=self.notes.append,
        )
        assert opened is not None
        return opened

    def decide(self, wish: Wish | str, *indexes: int) -> Any:
        wish = Wish(kind=wish) if isinstance(wish, str) else wish  # type: ignore[arg-type]
        number = self.queue.round().number
        tickets = [f"0-{index}" for index in indexes] or [t.id for t in self.queue.round().open_tickets()]
        return self.queue.decide(number, tickets, wish, ANN, at=NOW)

    async def carry_out(self) -> Manifest:
        """Close the round, and carry it out."""
        self.queue.close("all", at=NOW)
        round = self.queue.round()
        hands = Hands(send=self._send, prompt=self._prompt, note=self.notes.append, wall=lambda: NOW)
        (self.manifest,) = await carry_out(round, [portion_of(self.job, self.manifest)], hands)
        round.applied()
        check(self)
        return self.manifest

    async def _send(self, job: Job, chunk: Chunk, again: Again) -> Manifest:
        state = self.state or SqliteState(":memory:")
        try:
            return await run(job, chunk, state=state, observe=Recorder(), note=self.notes.append, again=again)
        finally:
            if self.state is None:
                await state.close()

    def _prompt(self, name: str) -> Prompt:
        assert name == "inline@2"
        return inline_prompt("Be very brief.", "Second attempt at {{ text }}.")

    @property
    def rows(self) -> list[Result]:
        return list(results(open_folder(self.job.result_path)))

    @property
    def outcomes(self) -> list[str]:
        return [row.outcome.value for row in self.rows]


def check(review: Review) -> None:
    """What holds after every review: each item has one row, the counts add up."""
    rows = review.rows
    assert [row.index for row in rows] == list(range(review.manifest.items))
    assert Counter(row.outcome for row in rows) == Counter(review.manifest.counts)


def failing(numbers: Any, **reply: Any) -> list[dict[str, Any]]:
    """Return rules by which the items with these numbers get such a reply."""
    return [{"match": {"contains": f"row {n:04d}"}, **reply} for n in itertools.chain(numbers)]
