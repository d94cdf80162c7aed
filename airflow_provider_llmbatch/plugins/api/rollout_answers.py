"""Rollouts, rounds and pairs in the forms of the API."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from airflow_provider_llmbatch.engine.items import Json, Outcome, Result
from airflow_provider_llmbatch.engine.pairs import Pair
from airflow_provider_llmbatch.engine.rollout.distribution import Distribution
from airflow_provider_llmbatch.engine.rollout.judge import question_of
from airflow_provider_llmbatch.engine.rollout.standing import RoundOf, Standing, Step
from airflow_provider_llmbatch.engine.rollout.steps import Steps
from airflow_provider_llmbatch.engine.rollout.terms import Version
from airflow_provider_llmbatch.plugins.api.answers import moment
from airflow_provider_llmbatch.plugins.api.rollout_shapes import (
    AnswerShape,
    ComparisonShape,
    DistributionShape,
    PairShape,
    RolloutEntry,
    RolloutShape,
    RoundShape,
    StepShape,
    VersionShape,
)
from airflow_provider_llmbatch.plugins.api.shapes import PersonShape

#: Latest steps that an answer lists.
STEPS_MOST = 50


def entry(steps: Steps, standing: Standing) -> RolloutEntry:
    """Return a rollout for the list."""
    return RolloutEntry(**_entry(steps, standing))


def whole(steps: Steps, standing: Standing, *, may_act: bool) -> RolloutShape:
    """Return a rollout with all that there is to know of it, but for its rounds."""
    rules = standing.rules
    higher = rules.next_rate(standing.rate)
    return RolloutShape(
        **_entry(steps, standing),
        ladder=list(rules.ladder),
        next_rate=None if higher == standing.rate else higher,
        rung=standing.rung,
        promotes=rules.promotes,
        min_new=rules.min_new,
        patience=rules.patience,
        streaks={metric: rounds for metric, rounds in standing.streaks.items() if rounds},
        steps=[_step(step) for step in steps.history[: -STEPS_MOST - 1 : -1]],
        may_act=may_act,
    )


def _entry(steps: Steps, standing: Standing) -> dict[str, Any]:
    terms = standing.terms
    return {
        "dag_id": terms.dag,
        "name": terms.name,
        "state": standing.state,
        "rate": standing.rate,
        "rounds": standing.rounds,
        "number": standing.number,
        "base": _version(terms.base),
        "candidate": _version(terms.candidate),
        "unit": terms.unit,
        "last": _step(steps.history[standing.number - 1]),
    }


def _version(version: Version) -> VersionShape:
    return VersionShape(prompt=str(version.prompt), sha=version.prompt.sha or "", params=dict(version.params))


def _step(step: Step) -> StepShape:
    return StepShape(
        number=step.number,
        at=moment(step.at),
        action=step.action,
        state=step.state,
        rate=step.rate,
        round=step.round,
        by=PersonShape(**asdict(step.by)) if step.by.name else None,
        why=step.why,
    )


def round_shape(round: RoundOf) -> RoundShape:
    """Return what a round has found."""
    return RoundShape(
        number=round.number,
        at=moment(round.at),
        action=round.move.action,
        rate=round.move.rate,
        why=round.move.why,
        mismatch_p=round.mismatch_p,
        comparisons=[ComparisonShape(**each.to_json()) for each in round.comparisons],
    )


def distribution_shape(metric: str, found: Distribution | None) -> DistributionShape:
    """Return how the scores of a metric are spread."""
    if found is None:
        return DistributionShape(metric=metric, edges=[], base=[], candidate=[])
    return DistributionShape(
        metric=metric,
        edges=list(found.edges),
        base=list(found.base),
        candidate=list(found.candidate),
    )


def pair_shape(pair: Pair) -> PairShape:
    """Return a pair with its texts."""
    return PairShape(
        id=pair.id,
        question=question_of(pair.item) if pair.item else None,
        reference=_text(pair.item.reference) if pair.item and pair.item.reference is not None else None,
        base=pair.base,
        candidate=pair.candidate,
        effect=pair.effect,
        base_answer=_answer(pair.results.get("base")),
        candidate_answer=_answer(pair.results.get("candidate")),
    )


def _answer(result: Result | None) -> AnswerShape | None:
    if result is None:
        return None
    usable = result.outcome is Outcome.OK or result.output is not None
    return AnswerShape(
        outcome=result.outcome.value,
        text=_text(result.output) if usable else result.raw_output,
        error=result.error.message if result.error else None,
        model=result.served_model,
    )


def _text(output: Json) -> str:
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, indent=2)
