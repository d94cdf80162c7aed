"""Rollouts over HTTP, behind Airflow's permissions, over logs on real folders."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.rollout.steps import Steps
from airflow_provider_llmbatch.engine.rollout.terms import Rules
from airflow_provider_llmbatch.operators.places import rollout_folder
from tests.engine.rollout.trials import ANN, NOW, paired
from tests.engine.rollout.whole import DAG, NAME, RIGHT, RULES, WRONG, close_round, rollout

API = "/llmbatch/api/v1"
PATH = f"{API}/dags/{DAG}/rollouts/{NAME}"
HERE = {"origin": "http://testserver"}


@pytest.fixture(autouse=True)
def results_path(tmp_path, monkeypatch) -> str:
    """Return where results lie, each time somewhere else."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__RESULTS_PATH", str(tmp_path / "results"))
    return str(tmp_path / "results")


@pytest.fixture
def steps(results_path) -> Steps:
    return rollout(results_path)


@pytest.fixture
def act(api):
    """Return a function that posts what a person wants."""

    def _act(kind: str, role: str | None = "user", headers: Any = HERE, **body: Any) -> Any:
        return api(f"{PATH}/steps", role, "POST", {"act": kind, **body}, **headers)

    return _act


def test_rollouts_are_listed_with_where_they_stand_the_latest_first(api, results_path, steps):
    rollout(results_path, "kinder")
    rollout(results_path, "other", dag="größe")
    close_round(results_path, steps)
    found = api(f"{API}/rollouts", "viewer").json()
    assert found["total"] == 3
    first = found["rollouts"][0]
    assert first["name"] == NAME
    assert (first["dag_id"], first["state"], first["rounds"], first["number"]) == (DAG, "running", 1, 2)
    assert first["base"] == {"prompt": "p@1", "sha": "1" * 64, "params": {}}
    assert first["last"]["action"] in ("hold", "promote")
    of_dag = api(f"{API}/rollouts?dag_id=größe", "viewer").json()["rollouts"]
    assert [(each["dag_id"], each["name"]) for each in of_dag] == [("größe", "other")]
    page = api(f"{API}/rollouts?limit=1&offset=1", "viewer").json()
    assert (page["total"], len(page["rollouts"])) == (3, 1)


def test_without_rollouts_the_list_is_empty_and_none_is_found(api):
    assert api(f"{API}/rollouts", "viewer").json() == {"total": 0, "rollouts": []}
    answer = api(PATH, "viewer")
    assert (answer.status_code, "has opened no rollout" in answer.json()["detail"]) == (404, True)
    for climbing in ("..", "%2e%2e", "%2e"):
        assert api(f"{API}/dags/{DAG}/rollouts/{climbing}/rounds", "viewer").status_code == 404


def test_a_rollout_shows_its_ladder_its_steps_and_whether_one_may_act(api, results_path, steps):
    steps.act("pause", RULES, by=ANN, why="odd answers", at=NOW + 5)
    found = api(PATH, "viewer").json()
    assert (found["state"], found["rate"], found["rung"], found["may_act"]) == ("paused", 0.0, 0.05, False)
    assert found["ladder"] == [0.05, 0.15, 0.5, 1.0]
    newest, first = found["steps"]
    assert (newest["number"], newest["action"], newest["why"]) == (2, "pause", "odd answers")
    assert newest["by"] == {"id": "1", "name": "ann"}
    assert (first["action"], first["rate"], first["by"]) == ("open", 0.05, None)
    assert api(PATH, "user").json()["may_act"] is True


def test_rounds_say_what_they_have_found_with_intervals_verdicts_and_power(api, results_path, steps):
    live = paired([1.0] * 9, [0.0] * 5, "validity", is_paired=False)
    close_round(results_path, steps, metrics=["token_f1", "tests.engine.rollout.answers:Broken"], live=[live])
    close_round(results_path, steps)
    found = api(f"{PATH}/rounds", "viewer").json()
    assert (found["total"], [each["number"] for each in found["rounds"]]) == (2, [2, 1])
    first = found["rounds"][1]
    assert "not_run: broken" in first["why"]
    by_metric = {each["metric"]: each for each in first["comparisons"]}
    assert by_metric["broken"]["verdict"] == "not_run"
    assert by_metric["token_f1"]["low"] <= by_metric["token_f1"]["effect"] <= by_metric["token_f1"]["high"]
    assert 0 <= by_metric["token_f1"]["power"] <= 1
    assert (by_metric["validity"]["base"], by_metric["validity"]["candidate"]) == (9, 5)
    assert [each["number"] for each in api(f"{PATH}/rounds?limit=1&offset=1", "viewer").json()["rounds"]] == [
        1
    ]


def test_scores_are_counted_in_the_same_bins_for_both_arms(api, results_path, steps):
    live = [
        paired([120, 340, 340], [980], "latency_ms", is_paired=False, lower_is_better=True),
        paired([], [], "cost_usd", is_paired=False),
    ]
    close_round(results_path, steps, live=live)
    found = {
        each["metric"]: each
        for each in api(f"{PATH}/rounds/1/distributions", "viewer").json()["distributions"]
    }
    f1, latency = found["token_f1"], found["latency_ms"]
    assert (f1["edges"][0], f1["edges"][-1], len(f1["edges"])) == (0, 1, 21)
    assert (f1["base"][-1], f1["candidate"][-1], f1["candidate"][0]) == (4, 3, 1)
    assert (latency["edges"][0], latency["edges"][-1]) == (120, 980)
    assert (sum(latency["base"]), latency["candidate"][-1]) == (3, 1)
    assert found["cost_usd"]["edges"] == []
    assert api(f"{PATH}/rounds/7/distributions", "viewer").status_code == 404


def test_pairs_that_differ_most_come_first_with_both_answers_and_grades(api, results_path, steps):
    better = ("no idea", "a clear night", {"a": [1]}, Outcome.REFUSED)
    close_round(results_path, steps, better, ("six at night", *RIGHT[1:]))
    pairs = f"{PATH}/rounds/1/pairs?metric=token_f1"
    found = api(pairs, "viewer").json()
    assert found["total"] == 4
    assert [each["id"] for each in found["pairs"]] == ["item-2", "item-3", "item-0", "item-1"]
    third = found["pairs"][0]
    assert (third["base"], third["candidate"], third["effect"]) == (0.0, 1.0, 1.0)
    assert json.loads(third["base_answer"]["text"]) == {"a": [1]}
    assert third["candidate_answer"]["text"] == "forty two"
    refused = found["pairs"][1]["base_answer"]
    assert (refused["outcome"], refused["text"]) == ("refused", "I had rather not.")
    assert api(f"{pairs}&side=worse", "viewer").json() == {"total": 0, "pairs": [], "why_not": None}
    assert len(api(f"{pairs}&side=better&limit=2&offset=3", "viewer").json()["pairs"]) == 1


def test_pairs_say_what_was_asked_and_what_is_right_where_the_golden_set_can_be_read(
    api, tmp_path, results_path, steps
):
    source = tmp_path / "golden.jsonl"
    item = {"id": "item-0", "vars": {"text": "When does it leave?"}, "reference": ["at six", "6"]}
    source.write_text(json.dumps(item) + "\n")
    close_round(results_path, steps, source=str(source))
    pairs = f"{PATH}/rounds/1/pairs?metric=token_f1"
    found = api(pairs, "viewer").json()
    assert found["why_not"] is None
    assert found["pairs"][0]["question"] == "When does it leave?"
    assert json.loads(found["pairs"][0]["reference"]) == ["at six", "6"]
    source.unlink()
    found = api(pairs, "viewer").json()
    assert "does not exist" in found["why_not"]
    assert (found["pairs"][0]["question"], found["pairs"][0]["candidate_answer"]["text"]) == (None, WRONG[0])
    close_round(results_path, steps)
    assert "was not a file" in api(pairs.replace("/1/", "/2/"), "viewer").json()["why_not"]


def test_answers_that_were_asked_for_after_the_round_are_not_shown_for_those_that_were_graded(
    api, results_path, steps
):
    close_round(results_path, steps)
    for file in (Path(results_path) / DAG / "run-1" / "golden_candidate").glob("part-*"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        later = [json.dumps({**row, "started_at": "2031-01-01T00:00:00Z"}) + "\n" for row in rows]
        file.write_text("".join(later))
    (pair,) = api(f"{PATH}/rounds/1/pairs?metric=token_f1", "viewer").json()["pairs"]
    assert pair["base_answer"]["text"] == RIGHT[0]
    assert pair["candidate_answer"] is None


def test_answers_and_grades_that_are_gone_are_said_to_be_gone(api, results_path, steps):
    close_round(results_path, steps)
    shutil.rmtree(Path(results_path) / DAG / "run-1" / "golden_base")
    (pair,) = api(f"{PATH}/rounds/1/pairs?metric=token_f1", "viewer").json()["pairs"]
    assert pair["base_answer"] is None
    assert pair["candidate_answer"]["text"] == WRONG[0]
    answer = api(f"{PATH}/rounds/1/pairs?metric=bleu", "viewer")
    assert (answer.status_code, "by token_f1" in answer.json()["detail"]) == (422, True)
    (Path(rollout_folder(results_path, DAG, NAME)) / "grades-1.jsonl").unlink()
    for what in ("pairs?metric=token_f1", "distributions"):
        answer = api(f"{PATH}/rounds/1/{what}", "viewer")
        assert (answer.status_code, "is gone" in answer.json()["detail"]) == (404, True)


def test_people_promote_pause_and_resume_and_it_is_logged_and_audited(act, steps, airflow_db):
    assert act("promote", after=1, why="looks good").json()["rate"] == 0.15
    assert act("promote", after=2, to="all").json()["rate"] == 1.0
    top = act("promote", after=3)
    assert (top.status_code, "no higher rate" in top.json()["detail"]) == (409, True)
    paused = act("pause", why="odd").json()
    assert (paused["state"], paused["rate"], paused["rung"]) == ("paused", 0.0, 1.0)
    assert act("resume", after=4).json()["rate"] == 0.05
    standing = steps.standing()
    assert (standing.state, standing.rate, standing.number) == ("running", 0.05, 5)
    assert [(each.action, each.by.name, each.why) for each in steps.history[1:]] == [
        *(("promote", "somebody", "looks good"), ("promote", "somebody", "")),
        *(("pause", "somebody", "odd"), ("resume", "somebody", "")),
    ]
    with closing(sqlite3.connect(airflow_db)) as database:
        entries = database.execute(
            "SELECT owner, dag_id, extra FROM log WHERE event = 'llmbatch_rollout' ORDER BY id"
        ).fetchall()[-4:]
    assert {entry[:2] for entry in entries} == {("somebody", DAG)}
    assert [json.loads(entry[2])["act"] for entry in entries] == ["promote", "promote", "pause", "resume"]


@pytest.mark.parametrize(("kind", "before"), [("promote", ()), ("pause", ()), ("resume", ("pause",))])
def test_of_two_people_at_once_one_acts_and_the_other_is_shown_what_was_done(act, steps, kind, before):
    for each in before:
        steps.act(each, RULES, by=ANN, why="", at=NOW)
    number = steps.standing().number
    answers = []

    def click() -> None:
        answers.append(act(kind, after=number))

    people = [threading.Thread(target=click) for _ in range(4)]
    for each in people:
        each.start()
    for each in people:
        each.join()
    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 3}
    (done,) = [answer.json() for answer in answers if answer.status_code == 200]
    for refused in [answer.json() for answer in answers if answer.status_code == 409]:
        assert refused["rollout"] == done
        assert refused["detail"]
    assert steps.standing().number == number + 1


def test_nobody_climbs_or_resumes_after_a_step_that_they_have_not_seen_but_pauses(act, results_path, steps):
    close_round(results_path, steps)
    seen = steps.standing().number
    steps.act("pause", RULES, by=ANN, why="", at=NOW)
    steps.act("resume", RULES, by=ANN, why="mended", at=NOW)
    answer = act("promote", after=seen)
    assert (answer.status_code, "resume by ann: mended" in answer.json()["detail"]) == (409, True)
    assert act("promote").status_code == 422
    assert act("pause", after=seen).json()["state"] == "paused"
    steps.act("resume", RULES, by=ANN, why="", at=NOW)
    steps.act("pause", RULES, by=ANN, why="for another reason", at=NOW)
    assert act("resume", after=seen).status_code == 409
    assert steps.standing().state == "paused"


@pytest.mark.parametrize(("role", "status"), [(None, 401), ("viewer", 403)])
def test_who_may_not_edit_the_dag_changes_nothing(api, act, steps, role, status):
    assert act("pause", role).status_code == status
    assert api(PATH, role).status_code == (401 if role is None else 200)
    assert steps.standing().number == 1


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"origin": "http://elsewhere"}, {}, 403),
        ({**HERE, "sec-fetch-site": "cross-site"}, {}, 403),
        (HERE, {"act": "abandon"}, 422),
        (HERE, {"why": "a" * 2001}, 422),
        (HERE, {"to": "half"}, 422),
        (HERE, {"rate": 1}, 422),
        (HERE, {"after": 0}, 422),
    ],
)
def test_another_site_and_other_bodies_change_nothing(api, steps, headers, body, status):
    answer = api(f"{PATH}/steps", "user", "POST", {"act": "pause", **body}, **headers)
    assert answer.status_code == status
    assert steps.standing().number == 1


def test_a_rollout_that_was_opened_anew_under_its_name_is_read_anew(api, act, results_path, steps):
    close_round(results_path, steps)
    assert api(PATH, "viewer").json()["rounds"] == 1
    shutil.rmtree(rollout_folder(results_path, DAG, NAME))
    again = Steps(open_folder(rollout_folder(results_path, DAG, NAME)))
    again.open(steps.standing().terms, Rules(ladder=(0.3, 0.6)), at=NOW + 1)
    found = api(PATH, "viewer").json()
    assert (found["rounds"], found["rate"], found["next_rate"]) == (0, 0.3, 0.6)
    assert act("promote", after=1).json()["rate"] == 0.6
    assert again.standing().number == 2


def test_logs_of_before_rules_and_grades_were_in_them_are_read(api, act, results_path, steps):
    close_round(results_path, steps)
    for file in Path(rollout_folder(results_path, DAG, NAME)).glob("step-*.json"):
        entry = json.loads(file.read_text())
        entry.pop("grades", None)
        if entry["type"] == "opened":
            entry.pop("rules")
        file.write_text(json.dumps(entry))
    assert api(PATH, "viewer").json()["ladder"] == [0.05, 0.15, 0.5, 1.0]
    answer = api(f"{PATH}/rounds/1/distributions", "viewer")
    assert (answer.status_code, "does not say where" in answer.json()["detail"]) == (404, True)
