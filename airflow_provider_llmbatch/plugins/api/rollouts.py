"""Rollouts over HTTP: where they stand, what their rounds have found, and what people want of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response, status

from airflow_provider_llmbatch.engine.items import Item
from airflow_provider_llmbatch.engine.journal import Person
from airflow_provider_llmbatch.engine.pairs import Side, items_of, most_unlike, pairs_of
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.rollout.distribution import distribution
from airflow_provider_llmbatch.engine.rollout.sheet import Sheet
from airflow_provider_llmbatch.engine.rollout.standing import RoundOf
from airflow_provider_llmbatch.errors import InputError, LLMBatchError
from airflow_provider_llmbatch.operators.rollouts import dags_with_rollouts, read_sheet, rollouts_of
from airflow_provider_llmbatch.operators.storage import open_folder, open_source
from airflow_provider_llmbatch.plugins.api import rollout_answers as answers
from airflow_provider_llmbatch.plugins.api.audit import audit
from airflow_provider_llmbatch.plugins.api.gates import (
    FROM_HERE,
    MAY_EDIT,
    MAY_READ,
    Readable,
    may_edit,
    readable_dags,
)
from airflow_provider_llmbatch.plugins.api.rollout_logs import Log, log_of
from airflow_provider_llmbatch.plugins.api.rollout_shapes import (
    ActBody,
    Distributions,
    PairPage,
    RefusedAct,
    RolloutList,
    RolloutShape,
    RoundPage,
)
from airflow_provider_llmbatch.plugins.api.shapes import PAGE
from airflow_provider_llmbatch.settings import load_settings

#: Most rollouts and rounds of an answer, and most pairs, whose texts may be long.
LISTED_MOST, PAIRS_MOST = 200, 50
#: Rounds and pairs when nothing is said.
ROUNDS, PAIRS = 30, 10

router = APIRouter(prefix="/api/v1")

_ROLLOUT = "/dags/{dag_id}/rollouts/{name}"
Offset = Annotated[int, Query(ge=0)]


def _log(dag_id: str, name: str) -> Log:
    log = log_of(dag_id, name)
    if log is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"The DAG {dag_id} has opened no rollout {name}.")
    return log


LogDep = Annotated[Log, Depends(_log)]


@router.get("/rollouts")
def list_rollouts(
    readable: Annotated[Readable, Depends(readable_dags)],
    dag_id: str | None = None,
    limit: Annotated[int, Query(ge=1, le=LISTED_MOST)] = PAGE,
    offset: Offset = 0,
) -> RolloutList:
    """List the rollouts of the DAGs that the caller may read, the ones that changed last first."""
    settings = load_settings()
    dags = [each for each in dags_with_rollouts(settings) if dag_id in (None, each) and each in readable]
    logs = [log_of(dag, name) for dag in dags for name in rollouts_of(settings, dag)]
    known = [answers.entry(log.steps, log.standing()) for log in logs if log is not None]
    known.sort(key=lambda each: each.last.at, reverse=True)
    return RolloutList(total=len(known), rollouts=known[offset : offset + limit])


@router.get(_ROLLOUT, dependencies=[MAY_READ])
def show_rollout(dag_id: str, log: LogDep, request: Request, user: GetUserDep) -> RolloutShape:
    """Show where a rollout stands, and its latest steps."""
    return answers.whole(log.steps, log.standing(), may_act=may_edit(dag_id, request, user))


@router.get(_ROLLOUT + "/rounds", dependencies=[MAY_READ])
def list_rounds(
    log: LogDep, limit: Annotated[int, Query(ge=1, le=LISTED_MOST)] = ROUNDS, offset: Offset = 0
) -> RoundPage:
    """List what rounds have found, the latest first."""
    log.standing()
    rounds = log.steps.rounds[::-1]
    page = [answers.round_shape(round) for round in rounds[offset : offset + limit]]
    return RoundPage(total=len(rounds), rounds=page)


@router.get(_ROLLOUT + "/rounds/{number}/distributions", dependencies=[MAY_READ])
def show_distributions(log: LogDep, number: int) -> Distributions:
    """Count the scores of a round."""
    scores = _sheet(log, _round(log, number)).scores
    return Distributions(
        distributions=[answers.distribution_shape(each.metric, distribution(each)) for each in scores]
    )


@router.get(_ROLLOUT + "/rounds/{number}/pairs", dependencies=[MAY_READ])
def list_pairs(
    log: LogDep,
    number: int,
    metric: str,
    side: Side = "either",
    limit: Annotated[int, Query(ge=1, le=PAIRS_MOST)] = PAIRS,
    offset: Offset = 0,
) -> PairPage:
    """List the pairs of the golden set that differ most by a metric, with both answers."""
    round = _round(log, number)
    sheet = _sheet(log, round)
    scores = next((each for each in sheet.scores if each.metric == metric), None)
    if scores is None or not scores.paired:
        raise InputError(
            f"Round {number} has no pairs by the metric {metric!r}; it has some by "
            f"{', '.join(each.metric for each in sheet.scores if each.paired) or 'none'}."
        )
    units = most_unlike(scores, side)
    page = units[offset : offset + limit]
    items, why_not = _items(sheet, page) if page else ({}, None)
    pairs = pairs_of(sheet, scores, page, items, graded_by=round.at, open_folder=_look_into)
    return PairPage(total=len(units), pairs=[answers.pair_shape(pair) for pair in pairs], why_not=why_not)


@router.post(
    _ROLLOUT + "/steps",
    dependencies=[MAY_READ, MAY_EDIT, FROM_HERE],
    responses={status.HTTP_409_CONFLICT: {"model": RefusedAct}},
)
def act(
    log: LogDep, body: ActBody, request: Request, response: Response, user: GetUserDep, session: SessionDep
) -> RolloutShape | RefusedAct:
    """Pause, resume or promote; of people who do so at once, one does, and the others see what was done."""
    if body.after is None and body.act != "pause":
        raise InputError(f"Say with 'after' which step of the rollout you have seen, to {body.act} it.")
    by = Person(id=str(user.get_id()), name=str(user.get_name()))
    to = 1.0 if body.to == "all" and body.act == "promote" else None
    try:
        log.act(body.act, by=by, why=body.why, at=time.time(), to=to, after=body.after)
    except InputError as error:
        response.status_code = status.HTTP_409_CONFLICT
        return RefusedAct(detail=str(error), rollout=answers.whole(log.steps, log.standing(), may_act=True))
    standing = log.standing()
    audit("llmbatch_rollout", request, session, user, act=body.act, rate=standing.rate)
    return answers.whole(log.steps, standing, may_act=True)


def _look_into(path: str) -> Folder:
    return open_folder(path, read_only=True)


def _items(sheet: Sheet, units: Sequence[str]) -> tuple[dict[str, Item], str | None]:
    """Return items of the golden set; where they cannot be read from here, none, and why."""
    if not sheet.source:
        return {}, "The golden set was not a file, so its questions are not known here."
    try:
        return items_of(open_source(sheet.source), units), None
    except LLMBatchError as error:
        return {}, f"The golden set cannot be read from here: {error}"


def _round(log: Log, number: int) -> RoundOf:
    log.standing()
    round = next((each for each in log.steps.rounds if each.number == number), None)
    if round is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"There is no round {number}.")
    return round


def _sheet(log: Log, round: RoundOf) -> Sheet:
    """Return the scores of a round."""
    if not round.grades:
        raise HTTPException(
            status.HTTP_404_NOT_FOUND, f"Round {round.number} does not say where its grades are."
        )
    try:
        return read_sheet(log.folder, round.grades)
    except InputError as error:
        raise HTTPException(status.HTTP_404_NOT_FOUND, str(error)) from error
