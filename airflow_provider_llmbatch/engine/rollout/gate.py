"""The gate: whether a rollout goes on, stays, or pauses. What could not run lets nothing through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from airflow_provider_llmbatch.engine.rollout.terms import Rules
from airflow_provider_llmbatch.engine.rollout.variant import MISMATCH_P
from airflow_provider_llmbatch.engine.rollout.verdict import Comparison, Verdict

Action = Literal["hold", "promote", "pause"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What becomes of a rollout after a round."""

    action: Action
    #: share of the units that get the candidate from now on
    rate: float
    why: str


def streaks_after(earlier: Mapping[str, int], comparisons: Sequence[Comparison]) -> dict[str, int]:
    """
    Return in how many rounds running each metric was worse.

    A round in which a metric was not compared neither adds to its streak nor ends it.

    :param earlier: the same before this round.
    """
    streaks = dict(earlier)
    for each in comparisons:
        if each.verdict is Verdict.WORSE:
            streaks[each.metric] = streaks.get(each.metric, 0) + 1
        elif each.verdict.is_known:
            streaks[each.metric] = 0
    return streaks


def move(
    rate: float,
    streaks: Mapping[str, int],
    comparisons: Sequence[Comparison],
    rules: Rules,
    mismatch_p: float | None,
) -> Move:
    """
    Decide about a running rollout.

    :param rate: share of the units that get the candidate so far.
    :param streaks: in how many rounds running each metric was worse, this one included.
    :param mismatch_p: how probable the split of the units is; None when none were split.
    """
    lasting = [name for name, rounds in streaks.items() if rounds >= rules.patience]
    if lasting:
        told = ", ".join(lasting)
        return Move(action="pause", rate=0.0, why=f"worse in {rules.patience} rounds running: {told}")
    if why := _doubt(comparisons, mismatch_p):
        return Move(action="hold", rate=rate, why=why)
    higher = rules.next_rate(rate)
    if higher == rate:
        return Move(action="hold", rate=rate, why="no metric is worse, and there is no higher rung")
    if not rules.promotes:
        return Move(action="hold", rate=rate, why="no metric is worse; a person decides about the next rung")
    return Move(action="promote", rate=higher, why="no metric is worse")


def _doubt(comparisons: Sequence[Comparison], mismatch_p: float | None) -> str:
    """Return why a round is no reason to go on; empty when it is one."""
    if mismatch_p is not None and mismatch_p < MISMATCH_P:
        return f"the units are not split as they should be (p {mismatch_p:.2g}); something loses one arm's"
    if not comparisons:
        return "no metric was compared"
    doubtful: dict[Verdict, list[str]] = {}
    for each in comparisons:
        if each.verdict not in (Verdict.BETTER, Verdict.SAME):
            doubtful.setdefault(each.verdict, []).append(each.metric)
    return "; ".join(f"{verdict}: {', '.join(names)}" for verdict, names in doubtful.items())
