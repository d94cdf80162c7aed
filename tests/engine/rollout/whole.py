"""Whole rollouts for tests: answers, grades and rounds on real folders, without a dispatch behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from airflow_provider_llmbatch.engine.grading import golden_of, graded
from airflow_provider_llmbatch.engine.items import Item, Outcome
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.rollout.compare import compare
from airflow_provider_llmbatch.engine.rollout.grader import grader_of
from airflow_provider_llmbatch.engine.rollout.scores import Scores
from airflow_provider_llmbatch.engine.rollout.standing import RoundOf
from airflow_provider_llmbatch.engine.rollout.steps import Steps
from airflow_provider_llmbatch.engine.rollout.terms import Rules
from airflow_provider_llmbatch.engine.source import open_source
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.operators.places import rollout_folder, task_folder
from tests.engine.results import made
from tests.engine.rollout.trials import NOW, TERMS

DAG, NAME = "billing", "shorter"
RULES = Rules(min_new=2)
#: What is right, and what the base says; the candidate gets the first one wrong.
RIGHT = ("six in the morning", "a clear night sky", "forty two", "blue and green")
WRONG = ("at noon, perhaps", *RIGHT[1:])


def rollout(results_path: str, name: str = NAME, dag: str = DAG, rules: Rules = RULES) -> Steps:
    """Open a rollout below ``results_path``."""
    steps = Steps(open_folder(rollout_folder(results_path, dag, name)))
    steps.open(replace(TERMS, dag=dag, name=name), rules, at=NOW)
    return steps


def answered(path: str, said: Sequence[Any], arm: str, ids: Sequence[str]) -> Manifest:
    """Store answers to a golden set; an outcome in place of an answer is a reply that cannot be used."""
    store = made.opened(open_folder(path), made.answers(len(said)))
    for index, (text, id) in enumerate(zip(said, ids, strict=True)):
        given: dict[str, Any] = {"id": id, "variant": arm}
        if isinstance(text, Outcome):
            store.add(made.result(index, text, output=None, raw_output="I had rather not.", **given))
        else:
            store.add(made.result(index, output=text, **given))
    store.close()
    return Manifest(result_path=path, state="complete", items=len(said), counts={Outcome.OK: len(said)})


def close_round(
    results_path: str,
    steps: Steps,
    base: Sequence[Any] = RIGHT,
    candidate: Sequence[Any] = WRONG,
    *,
    right: Sequence[Any] = RIGHT,
    ids: Sequence[str] = (),
    metrics: Sequence[Any] = ("token_f1",),
    live: Sequence[Scores] = (),
    source: str = "",
) -> RoundOf:
    """Answer, grade and compare a golden set, and close a round with that."""
    standing = steps.standing()
    number, dag = standing.rounds + 1, standing.terms.dag
    ids = ids or [f"item-{index}" for index in range(len(right))]
    manifests = [
        answered(task_folder(results_path, dag, f"run-{number}", f"golden_{arm}"), said, arm, ids)
        for arm, said in (("base", base), ("candidate", candidate))
    ]
    items = [Item(index=n, id=ids[n], prompt="?", reference=text) for n, text in enumerate(right)]
    sheet = graded(
        steps,
        golden=golden_of([manifests[0]], [manifests[1]], items, open_folder, source=source),
        golden_graders=[grader_of(metric) for metric in metrics],
        live_graders=[],
        judge=None,
        open_folder=open_folder,
        open_source=open_source,
    )
    sheet = replace(sheet, scores=(*sheet.scores, *live))
    name = f"grades-{number}.jsonl"
    open_folder(rollout_folder(results_path, dag, standing.terms.name)).put(name, sheet.lines())
    return steps.close_round(
        compare(sheet.scores, standing.rules, seed=1),
        standing.rules,
        occasion=str(number),
        used=(),
        mismatch_p=sheet.mismatch_p,
        at=NOW + 60 * number,
        grades=name,
    )
