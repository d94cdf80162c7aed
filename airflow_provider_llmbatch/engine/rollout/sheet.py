"""The scores of a round on storage: a line of JSON for the round, one for each metric, one for each score."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_provider_llmbatch.engine.items import SCHEMA_VERSION
from airflow_provider_llmbatch.engine.rollout.scores import Scores
from airflow_provider_llmbatch.engine.rollout.variant import ARMS, Arm
from airflow_provider_llmbatch.errors import InputError

_ABOUT = (
    "metric",
    "paired",
    "missing_base",
    "missing_candidate",
    "lower_is_better",
    "failure",
    "note",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where rows lie."""

    result_path: str
    chunk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What a round is decided by."""

    scores: tuple[Scores, ...]
    #: keys of the live answers in it
    used: tuple[str, ...] = ()
    #: how probable the split of their units is; None when none were split
    mismatch_p: float | None = None
    #: where the answers to the golden set lie, if there is one and the round was made since this is said
    golden: Mapping[Arm, tuple[Place, ...]] = field(default_factory=dict)
    #: where its items lie; empty where they were rows of the task
    source: str = ""

    def lines(self) -> Iterator[bytes]:
        """Yield it as lines of JSON."""
        yield _line(
            type="round",
            schema_version=SCHEMA_VERSION,
            used=list(self.used),
            mismatch_p=self.mismatch_p,
            golden={arm: [asdict(place) for place in places] for arm, places in self.golden.items()},
            source=self.source,
        )
        for one in self.scores:
            yield _line(type="metric", **{name: getattr(one, name) for name in _ABOUT})
            for arm in ARMS:
                for unit, score in getattr(one, arm).items():
                    yield _line(type="score", metric=one.metric, arm=arm, unit=unit, score=score)

    @classmethod
    def read(cls, lines: Iterable[bytes], uri: str) -> Sheet:
        """
        Read what :meth:`lines` gave.

        :param uri: where it lies, for messages.
        :raises InputError: when it is something else.
        """
        about: dict[str, dict[str, Any]] = {}
        # by metric and arm, as fields of Scores
        scores: dict[str, dict[str, Any]] = {}
        head: dict[str, Any] = {}
        try:
            for line in lines:
                row = json.loads(line)
                kind = row.pop("type")
                if kind == "score":
                    scores[row["metric"]][row["arm"]][row["unit"]] = row["score"]
                elif kind == "metric":
                    about[row["metric"]] = row
                    scores[row["metric"]] = {arm: {} for arm in ARMS}
                else:
                    head = row
            if head["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema_version {head['schema_version']}")
            return cls(
                scores=tuple(Scores(**row, **scores[name]) for name, row in about.items()),
                used=tuple(head["used"]),
                mismatch_p=head["mismatch_p"],
                golden={
                    arm: tuple(Place(**place) for place in places)
                    for arm, places in head.get("golden", {}).items()
                },
                source=head.get("source", ""),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{uri} holds no grades of this version: {error!r}. Clear the grade task."
            ) from error


def _line(**row: Any) -> bytes:
    return json.dumps(row, ensure_ascii=True, allow_nan=False).encode() + b"\n"
