"""What a comparison of two arms says of one metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """How the candidate does against the base."""

    BETTER = "better"  #: the whole interval lies above the threshold
    SAME = "same"  #: no difference beyond the threshold was shown; the power says how much that means
    WORSE = "worse"  #: the whole interval lies below minus the threshold
    NOT_ENOUGH = "not_enough"  #: fewer new answers than ``min_new``
    NOT_RUN = "not_run"  #: there was nothing to compare, or it could not be graded

    @property
    def is_known(self) -> bool:
        """Whether something was compared."""
        return self in _KNOWN


_KNOWN = frozenset({Verdict.BETTER, Verdict.SAME, Verdict.WORSE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric of one round. Effects are turned so that more is better."""

    metric: str
    verdict: Verdict
    #: whether both arms have answered the same items
    paired: bool = False
    #: units that were compared: of pairs, their number in both
    base: int = 0
    candidate: int = 0
    #: answers that are missing: failed calls, or what the metric is not defined for
    missing_base: int = 0
    missing_candidate: int = 0
    #: in the metric's own unit, not turned
    mean_base: float | None = None
    mean_candidate: float | None = None
    threshold: float | None = None
    effect: float | None = None
    #: the bootstrap interval of the effect
    low: float | None = None
    high: float | None = None
    #: probability of such an effect, or a larger one, if the candidate were just as much worse as it may be;
    #: and the same after Holm's correction for all metrics of the round
    p: float | None = None
    p_holm: float | None = None
    #: chance to have found it worse if it were worse by twice the threshold
    power: float | None = None
    #: two-sample Kolmogorov–Smirnov: the largest distance of the distributions, its probability, and how that
    #: was got: ``exact``, ``asymptotic`` or ``permutation``
    ks_distance: float | None = None
    ks_p: float | None = None
    ks_method: str = ""
    #: what a person should know, such as the tokenizer of BLEU or why it was not run
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Comparison:
        """Read what :meth:`to_json` wrote."""
        return cls(**{**data, "verdict": Verdict(data["verdict"])})

    def told(self) -> str:
        """Return it in a line."""
        words = f"{self.metric}: {self.verdict}"
        if self.effect is None:
            return f"{words}{_noted(self.note)}"
        kind = "pairs" if self.paired else f"and {self.candidate} units"
        return (
            f"{words}, effect {self.effect:+.4f} [{self.low:+.4f}, {self.high:+.4f}] against "
            f"±{self.threshold:.4f}, p {self.p_holm:.3g}, {self.base} {kind}, missing {self.missing_base} "
            f"and {self.missing_candidate}, power {self.power:.2f}, KS D {self.ks_distance:.3f} "
            f"(p {self.ks_p:.3g}, {self.ks_method}){_noted(self.note)}"
        )


def _noted(note: str) -> str:
    return f" ({note})" if note else ""
