"""A rollout from its opening to its pause, with a real dispatch behind every answer."""

from __future__ import annotations

import contextvars
import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from airflow.sdk import BaseNotifier
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_llmbatch.engine.items import Result
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.rollout.steps import Steps
from airflow_provider_llmbatch.engine.rollout.terms import Rules
from airflow_provider_llmbatch.engine.rollout.variant import arm_of
from airflow_provider_llmbatch.operators.grade import LLMBatchGradeOperator
from airflow_provider_llmbatch.operators.rollout import LLMBatchRolloutOperator
from airflow_provider_llmbatch.operators.rollouts import read_sheet
from tests.engine.rollout.trials import ANN, NOW

OLD, NEW = "Answer in a word.", "Answer in one word, and kindly."
TERMS = {"rollout": "kinder", "base": "answer@1", "candidate": "answer@2", "min_new": 20}
GOLDEN = [{"id": f"g{n}", "vars": {"text": f"question {n}"}, "reference": f"answer {n}"} for n in range(30)]
HALF = [0.5, 1.0]
#: Simulated answers have nothing to do with references, nor their latency with prompts.
WIDE = dict.fromkeys(["token_f1", "bleu", "latency_ms", "cost_usd"], 1000.0)


class Note(BaseNotifier):
    told: ClassVar[list[dict[str, Any]]] = []

    def notify(self, context):
        self.told.append(context["rollout"])


@pytest.fixture
def trial(stage):
    """Return a stage with two versions of a prompt."""
    Note.told.clear()
    for version, system in (("1", OLD), ("2", NEW)):
        stage.write(f"prompts/answer/{version}.yaml", f'system: "{system}"\nuser: "{{{{ text }}}}"\n')
    return stage


def rollout(stage, task_id: str = "gate", **arguments: Any) -> Any:
    return LLMBatchRolloutOperator(**{"task_id": task_id, "dag": stage.dag(), **TERMS, **arguments})


def opened(stage, **arguments: Any) -> Any:
    return stage.run(rollout(stage, "open", **arguments))


def steps_of(stage) -> Steps:
    return Steps(open_folder(str(stage.results_path / "~rollouts" / "d" / "kinder")))


def live(stage, task_id: str, count: int = 150, **arguments: Any) -> list[Result]:
    """Dispatch items under the rollout, and return their rows."""
    source = stage.items(count, f"{task_id}.jsonl")
    given = {"task_id": task_id, "source": source, "prompt": "rollout:kinder", "max_failed": 1.0}
    stage.run(stage.dispatch(**{**given, **arguments}))
    return stage.rows(task_id)


def golden(stage, number: int = 0) -> dict[str, Any]:
    """Dispatch the golden set for both arms, and return their manifests."""
    return {
        arm: stage.run(
            stage.dispatch(task_id=f"{arm}{number}", source=GOLDEN, prompt=f"rollout:kinder:{arm}")
        )
        for arm in ("base", "candidate")
    }


def grade(stage, task_id: str = "grade", **arguments: Any) -> Any:
    return stage.run(
        LLMBatchGradeOperator(task_id=task_id, dag=stage.dag(), rollout="kinder", model="m-1", **arguments)
    )


def lines_of(graded: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(graded["grades"]).read_text().splitlines()]


def arms(rows: list[Result]) -> Counter[str | None]:
    return Counter(row.variant for row in rows)


def test_items_are_asked_with_the_version_of_their_arm(trial):
    assert opened(trial) == {"rollout": "kinder", "state": "running", "rate": 0.05, "rounds": 0}
    rows = live(trial, "t")
    expected = Counter(arm_of("d/kinder", f"item:{row.id}", 0.05) for row in rows)
    assert arms(rows) == expected
    assert 2 < expected["candidate"] < 20
    assert {(row.variant, row.prompt.version) for row in rows} == {("base", "1"), ("candidate", "2")}
    # The new prompt is longer, so whoever had it was really asked with it.
    spent = {arm: {row.usage.prompt for row in rows if row.variant == arm} for arm in expected}
    assert min(spent["candidate"]) > max(spent["base"])


def test_a_dispatch_keeps_its_rate_over_retries_while_the_rollout_climbs(trial, service):
    ladder = (0.2, 0.9)
    opened(trial, ladder=ladder)
    service.play({"match": {"every": 2}, "reply": {"status": 503}})
    first = live(trial, "t", max_attempts=1, fail_fast=0)
    assert sum(not row.outcome.is_good for row in first) > 30
    steps_of(trial).act("promote", Rules(ladder=ladder), by=ANN, why="", at=NOW)
    service.play()
    second = live(trial, "t")
    assert all(row.outcome.is_good for row in second)
    assert {row.id: row.variant for row in second} == {row.id: row.variant for row in first}
    assert arms(live(trial, "later", 50))["candidate"] > 35


def test_a_pause_takes_effect_in_a_dispatch_that_runs(trial, simulate, connect):
    slow = simulate(latency_s=0.1)
    connect(slow.url, limits=[{"max_in_flight": 6}])
    opened(trial, ladder=HALF)
    steps = steps_of(trial)
    paused_at: list[float] = []

    def pause() -> None:
        while len(slow.arrivals()) < 40:
            time.sleep(0.05)
        steps.act("pause", Rules(), by=ANN, why="odd answers", at=time.time())
        paused_at.append(time.time())

    person = threading.Thread(target=pause)
    person.start()
    rows = live(trial, "t", 350)
    person.join()
    # The steps are read every two seconds; a second more for a busy machine.
    after = [row for row in rows if row.started_at > paused_at[0] + 3.0]
    assert arms([row for row in rows if row.started_at < paused_at[0]])["candidate"] > 5
    assert len(after) > 20
    assert set(arms(after)) == {"base"}


def test_a_route_can_send_the_candidate_to_another_model(trial, service):
    opened(trial, ladder=HALF)
    ends = {"old": {"model": "m-1"}, "new": {"model": "m-2"}}
    routes = {"endpoints": ends, "rules": [{"if": 'variant == "candidate"', "use": "new"}]}
    rows = live(trial, "t", 60, routes=routes)
    assert {(row.variant, row.served_model) for row in rows} == {("base", "m-1"), ("candidate", "m-2")}


def test_a_round_grades_what_is_new_and_takes_the_rollout_up(trial, service, connect):
    connect(service.url, prices={"m-1": {"input": "0.01", "output": "10"}})
    opened(trial, ladder=HALF)
    live(trial, "t")
    for number, (fresh, action) in enumerate([(1, "promote"), (0, "hold")]):
        graded = grade(trial, f"grade{number}", golden=golden(trial, number), source=GOLDEN)
        assert (graded["live"], graded["failed"]) == (fresh, {})
        gate = rollout(trial, f"gate{number}", ladder=HALF, grades=graded, thresholds=WIDE, notifiers=Note())
        closed = trial.run(gate)
        assert (closed["action"], closed["rate"]) == (action, 1.0)
    kinds = {"token_f1", "bleu", "validity", "refusal", "truncation", "cost_usd", "latency_ms"}
    assert set(closed["verdicts"]) == kinds
    assert closed["verdicts"]["validity"] == "not_enough"
    assert [told["round"] for told in Note.told] == [1]
    # A retry finds the round closed, and tells nobody again.
    assert trial.run(gate) == closed
    assert len(Note.told) == 1
    # Whoever looks at the round finds its grades, and where the answers behind them are.
    steps = steps_of(trial)
    steps.standing()
    sheet = read_sheet(
        open_folder(str(trial.results_path / "~rollouts" / "d" / "kinder")), steps.rounds[1].grades
    )
    assert [[Path(place.result_path) for place in sheet.golden[arm]] for arm in ("base", "candidate")] == [
        [trial.results_path / "d" / "r" / f"{arm}1"] for arm in ("base", "candidate")
    ]


def test_a_candidate_that_is_worse_twice_is_paused_and_resumed_by_a_person_only(trial, service):
    opened(trial, ladder=HALF)
    service.play({"match": {"contains": "kindly"}, "reply": {"refusal": "No."}})
    values = []
    for number in range(2):
        live(trial, f"t{number}", 80)
        graded = grade(trial, f"grade{number}")
        values.append(trial.run(rollout(trial, f"gate{number}", grades=graded, notifiers=Note())))
    assert [value["action"] for value in values] == ["hold", "pause"]
    assert (values[1]["state"], values[1]["verdicts"]["refusal"]) == ("paused", "worse")
    assert [told["action"] for told in Note.told] == ["pause"]
    assert arms(live(trial, "after", 40)) == {"base": 40}
    by_hand = {"action": "resume", "why": "a filter was broken", "notifiers": Note()}
    resume = rollout(trial, "resume", ladder=HALF, **by_hand)
    with pytest.raises(AirflowFailException, match="no person"):
        trial.run(resume)
    context = trial.context(resume)
    context["dag_run"] = SimpleNamespace(run_type="manual", triggering_user_name="ann")
    for _ in range(2):
        # A retry of the task finds that it is done.
        inside = contextvars.copy_context()
        inside.run(ExecutorSafeguard.tracker.set, resume)
        assert inside.run(resume.execute, context)["state"] == "running"
    told = Note.told[-1]
    assert [each["action"] for each in Note.told] == ["pause", "resume"]
    assert (told["by"], told["why"], told["state"]) == ("ann", "a filter was broken", "running")
    assert arms(live(trial, "resumed", 40))["candidate"] > 5


def test_what_a_person_does_on_a_page_is_told_by_the_next_task(trial):
    opened(trial)
    steps_of(trial).act("pause", Rules(), by=ANN, why="odd answers", at=NOW)
    assert opened(trial)["state"] == "paused"
    assert Note.told == [], "a task without notifiers leaves it to one that has some"
    for _ in range(2):
        opened(trial, notifiers=Note())
    (told,) = Note.told
    assert (told["rollout"], told["action"], told["by"]) == ("kinder", "pause", "ann")
    assert (told["state"], told["rate"], told["verdicts"]) == ("paused", 0.0, {})


def test_the_judge_is_asked_twice_about_each_pair_under_the_limits_of_its_connection(trial, service):
    """P99: what the judge is asked takes from the same limits and budgets as everything else."""
    opened(trial)
    arguments = {"golden": golden(trial), "source": GOLDEN, "golden_metrics": [], "live_metrics": []}
    service.reset()
    graded = grade(trial, judge=True, **arguments)
    assert len(service.arrivals()) == 2 * len(GOLDEN)
    assert list((trial.results_path / "d" / "r" / "grade").glob("ledger-*")), "what was paid is booked"
    (about,) = [line for line in lines_of(graded) if line["type"] == "metric"]
    assert (about["metric"], about["failure"]) == ("judge", "")
    assert "both orders agree in" in about["note"]
    scores = {line["unit"]: line["score"] for line in lines_of(graded) if line.get("arm") == "candidate"}
    assert len(scores) == len(GOLDEN)
    assert set(scores.values()) <= {0.0, 0.5, 1.0}
    assert grade(trial, judge=True, **arguments) == graded
    assert len(service.arrivals()) == 2 * len(GOLDEN)


def test_live_answers_that_one_arm_has_lost_are_seen_and_promote_nothing(trial):
    opened(trial, ladder=HALF)
    live(trial, "t")
    (note,) = (trial.results_path / "~rollouts" / "d" / "kinder").glob("live-*.json")
    content = json.loads(note.read_text())
    # As if nine of ten units should have had the candidate.
    note.write_text(json.dumps({**content, "rate": 0.9}))
    closed = trial.run(rollout(trial, ladder=HALF, grades=grade(trial, live_metrics=["validity"])))
    assert (closed["action"], closed["verdicts"]) == ("hold", {"validity": "same"})
    assert "not split as they should be" in closed["why"]


def test_a_metric_that_cannot_run_promotes_nothing(trial):
    opened(trial, ladder=HALF)
    live(trial, "t", 80)
    graded = grade(trial, live_metrics=["validity", "tests.engine.rollout.answers:Broken"])
    assert graded["failed"] == {"broken": "OSError: no such model"}
    closed = trial.run(rollout(trial, ladder=HALF, grades=graded))
    assert (closed["action"], closed["why"]) == ("hold", "not_run: broken")
    assert closed["verdicts"] == {"validity": "same", "broken": "not_run"}


def test_a_prompt_that_was_changed_under_the_rollout_is_not_sent(trial, service):
    opened(trial)
    trial.write("prompts/answer/2.yaml", 'system: "Other."\nuser: "{{ text }}"\n')
    with pytest.raises(AirflowFailException, match="restore the file"):
        live(trial, "t")
    with pytest.raises(AirflowFailException, match="another name"):
        opened(trial)
    assert service.arrivals() == []


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ("rollout:other", "LLMBatchRolloutOperator"),
        ("rollout:kinder:both", ":candidate"),
        ("rollout:", "letter"),
    ],
)
def test_a_rollout_that_cannot_be_followed_is_refused_before_anything_is_sent(trial, service, prompt, why):
    opened(trial)
    with pytest.raises(AirflowFailException, match=why):
        live(trial, "t", prompt=prompt)
    assert service.arrivals() == []


def test_versions_with_other_outputs_are_not_compared(trial):
    schema = '{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}'
    trial.write("prompts/answer/2.yaml", f'system: "New."\nuser: "{{{{ text }}}}"\noutput_schema: {schema}\n')
    opened(trial)
    with pytest.raises(AirflowFailException, match="different output schemas"):
        live(trial, "t")


def test_the_plan_of_the_golden_set_says_what_an_arm_will_cost(trial):
    opened(trial)
    plans = []
    for arm in ("base", "candidate"):
        chunks = trial.run(trial.split(task_id=arm, source=GOLDEN, prompt=f"rollout:kinder:{arm}"))
        plans.append(json.loads(Path(chunks[0]["plan"]).read_text()))
    base, candidate = plans
    assert base["items"] == candidate["items"] == len(GOLDEN)
    assert (base["prompt"]["version"], candidate["prompt"]["version"]) == ("1", "2")
    assert candidate["prompt_tokens"] > base["prompt_tokens"]


def test_turns_of_a_chain_have_one_version_and_count_as_one_unit(trial):
    for version in "12":
        trial.write(f"prompts/answer/{version}.yaml", f"system: Be kind {version}.\n")
    opened(trial, unit="group", ladder=HALF)
    lines = [
        json.dumps({"id": f"{n}-{seq}", "group": f"g{n}", "seq": seq, "prompt": f"turn {seq} of {n}"})
        for n in range(40)
        for seq in range(3)
    ]
    rows = live(trial, "t", source=trial.write("chains.jsonl", "\n".join(lines) + "\n"))
    by_group = {row.id.split("-")[0]: row.variant for row in rows}
    assert set(by_group.values()) == {"base", "candidate"}
    assert all(by_group[row.id.split("-")[0]] == row.variant for row in rows)
    graded = grade(trial, live_metrics=["validity"])
    units = [line["unit"] for line in lines_of(graded) if line["type"] == "score"]
    assert sorted(units) == sorted(f'group:"g{n}"' for n in range(40))


def test_libraries_that_are_missing_are_named_with_what_installs_them(trial, monkeypatch):
    opened(trial)
    for module in ("compare", "bertscore", "encoder", "layers"):
        monkeypatch.delitem(sys.modules, f"airflow_provider_llmbatch.engine.rollout.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(AirflowFailException, match=r"llmbatch\[grade\]"):
        grade(trial, golden_metrics=[{"grader": "bertscore", "encoder": "/nowhere"}])
    with pytest.raises(AirflowFailException, match=r"llmbatch\[grade\]"):
        trial.run(rollout(trial, grades={"grades": "/nowhere/grades.jsonl"}))
