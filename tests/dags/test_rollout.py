"""The DAG of a rollout in a real Airflow."""

from __future__ import annotations

import time

import pytest

from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.rollout.steps import Steps
from airflow_provider_llmbatch.engine.rollout.terms import Rules
from airflow_provider_llmbatch.operators.rollouts import read_sheet
from tests.dags.test_dags import returned, rows, states
from tests.engine.rollout.trials import ANN

pytestmark = pytest.mark.slow


def test_a_run_is_a_round_and_while_the_rollout_is_paused_only_production_is_served(
    run_dag, arrivals, tmp_path
):
    first = run_dag("prompt_rollout.py", "prompt_rollout")
    assert set(map(tuple, states(first).values())) == {("success",)}
    closed = returned(first, "gate")
    assert (closed["round"], closed["rate"], closed["action"]) == (1, 0.05, "hold")
    # Sixty pairs are enough, and the few production items that had the candidate are not.
    assert closed["verdicts"]["token_f1"] in ("same", "better", "worse")
    assert closed["verdicts"]["validity"] == "not_enough"
    assert {row.variant for row in rows(returned(first, "golden_candidate"))} == {"candidate"}
    assert len(arrivals()) == 120 + 2 * 60
    folder = open_folder(str(tmp_path / "results" / "~rollouts" / "prompt_rollout" / "shorter"))
    steps = Steps(folder)
    steps.standing()
    (round,) = steps.rounds
    assert read_sheet(folder, round.grades).source.endswith("data/golden_questions.jsonl")
    steps.act("pause", Rules(), by=ANN, why="odd answers", at=time.time())
    second = run_dag("prompt_rollout.py", "prompt_rollout")
    done = {task for task, found in states(second).items() if found == ["success"]}
    assert done == {"open", "runs", "live"}
    assert {row.variant for row in rows(returned(second, "live"))} == {"base"}
    assert len(arrivals()) == 2 * 120 + 2 * 60
