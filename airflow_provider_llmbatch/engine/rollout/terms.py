"""What a rollout tries, and by which rules it goes on; both as they stand on storage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_provider_llmbatch.engine.items import Json, PromptRef
from airflow_provider_llmbatch.engine.rollout.variant import Arm, check_unit
from airflow_provider_llmbatch.errors import ConfigurationError, InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

#: Shares of the units that get the candidate, one after the other.
LADDER = (0.05, 0.15, 0.5, 1.0)
#: New answers of each arm below which a round says nothing about a metric.
MIN_NEW = 100
#: How much worse a metric may be, in its own unit; others may be by :data:`RELATIVE`.
THRESHOLDS: Mapping[str, float] = {
    "bertscore": 0.02,
    "bleu": 0.02,
    "judge": 0.05,
    "exact_match": 0.01,
    "token_f1": 0.01,
    "field_f1": 0.01,
    "validity": 0.02,
    "refusal": 0.02,
    "truncation": 0.02,
}
#: Of metrics without a natural unit: a share of the base's mean.
RELATIVE = 0.1


def check_name(name: str) -> str:
    """
    Return the name of a rollout.

    :raises ConfigurationError: when it cannot be a part of a path.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"The rollout {name!r} starts with no letter or digit, or holds more than letters, digits, '.', "
            "'_' and '-'; name it so."
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What an arm asks with."""

    prompt: PromptRef
    #: request parameters, over those of the prompt and under those of the task
    params: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a rollout tries. It stays the same for as long as the rollout lasts."""

    #: the DAG that owns it
    dag: str
    name: str
    base: Version
    candidate: Version
    #: what is assigned together; see :func:`.variant.check_unit`
    unit: str = "item"

    def __post_init__(self) -> None:
        """Refuse what is no trial."""
        check_name(self.name)
        check_unit(self.unit)
        if self.base == self.candidate:
            raise ConfigurationError(
                f"Base and candidate of rollout {self.name!r} are both {self.base.prompt} with the same "
                "params; give two versions that differ."
            )

    @property
    def key(self) -> str:
        """What tells it apart from all others."""
        return f"{self.dag}/{self.name}"

    def version(self, arm: Arm) -> Version:
        """Return what an arm asks with."""
        return self.base if arm == "base" else self.candidate

    def to_json(self) -> dict[str, Any]:
        """Return them as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Terms:
        """
        Read what :meth:`to_json` wrote.

        :raises InputError: when it is something else.
        """
        try:
            arms = {
                arm: Version(prompt=PromptRef(**data[arm]["prompt"]), params=data[arm]["params"])
                for arm in ("base", "candidate")
            }
            return cls(dag=data["dag"], name=data["name"], unit=data["unit"], **arms)
        except (KeyError, TypeError) as error:
            raise InputError(f"These are no terms of a rollout: {error!r}.") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """By which rules a rollout goes on; each round may have its own, and says which."""

    #: shares of the units, rising to 1
    ladder: tuple[float, ...] = LADDER
    #: by metric, how much worse it may be; over :data:`THRESHOLDS`
    thresholds: Mapping[str, float] = field(default_factory=dict)
    #: new answers of each arm that a metric needs
    min_new: int = MIN_NEW
    #: chance of error of all metrics of a round together
    alpha: float = 0.05
    #: rounds running in which a metric is worse before the rollout pauses
    patience: int = 2
    #: whether rungs are climbed by themselves; False leaves that to people
    promotes: bool = True

    def __post_init__(self) -> None:
        """Refuse a ladder that does not rise to the top."""
        rising = all(low < high for low, high in zip(self.ladder, self.ladder[1:], strict=False))
        if not self.ladder or not rising or self.ladder[0] <= 0 or self.ladder[-1] > 1:
            raise ConfigurationError(
                f"ladder is {list(self.ladder)}; give shares that rise, above 0 and up to 1, such as "
                f"{list(LADDER)}."
            )
        if any(not limit >= 0 for limit in self.thresholds.values()):
            raise ConfigurationError(
                f"thresholds are {dict(self.thresholds)}; give by how much a metric may be worse, from 0."
            )
        if self.min_new < 2 or self.patience < 1 or not 0 < self.alpha < 1:
            raise ConfigurationError(
                f"min_new is {self.min_new}, patience {self.patience}, alpha {self.alpha}; give at least 2, "
                "at least 1, and a number between 0 and 1."
            )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Rules:
        """Read what they are as JSON values."""
        return cls(**{**data, "ladder": tuple(data["ladder"])})

    def threshold(self, metric: str, base_mean: float) -> float:
        """Return how much worse a metric may be, in its own unit."""
        known = {**THRESHOLDS, **self.thresholds}
        return known[metric] if metric in known else RELATIVE * abs(base_mean)

    def next_rate(self, rate: float) -> float:
        """Return the rung above a rate; the rate itself at the top."""
        return next((rung for rung in self.ladder if rung > rate), rate)
