"""A split task draws a plan and hands out chunks, or, asked to, the plan alone."""

from __future__ import annotations

import json

import pytest
from airflow.sdk.exceptions import AirflowFailException


@pytest.mark.parametrize("plan_only", [True, "True", "true"])
def test_a_plan_alone_hands_out_no_chunks_and_is_stored_all_the_same(stage, plan_only):
    chunks = stage.run(stage.split(source=stage.items(12), plan_only=plan_only, token_budget=100))
    plan = json.loads((stage.results_path / "d" / "r" / "s" / "plan.json").read_text())
    assert chunks == []
    assert plan["items"] == 12
    assert len(plan["chunks"]) > 1
    assert stage.service.arrivals() == []


@pytest.mark.parametrize("plan_only", [False, "False", None, "None"])
def test_otherwise_there_is_a_descriptor_for_each_chunk(stage, plan_only):
    chunks = stage.run(stage.split(source=stage.items(12), plan_only=plan_only, max_chunks=3))
    assert [set(chunk) for chunk in chunks] == [{"plan", "chunk", "sha"}] * len(chunks)
    assert 1 <= len(chunks) <= 3


def test_what_is_neither_yes_nor_no_is_refused(stage):
    with pytest.raises(AirflowFailException, match="plan_only is 'maybe'; set it to True or False"):
        stage.run(stage.split(source=stage.items(1), plan_only="maybe"))


def test_a_sample_is_planned_alone(stage):
    stage.run(stage.split(source=stage.items(12), sample="5"))
    plan = json.loads((stage.results_path / "d" / "r" / "s" / "plan.json").read_text())
    assert (plan["items"], plan["chunks"][-1]["stop"]) == (5, 5)


def test_models_that_nobody_knows_are_counted_with_the_encoding_of_the_installation(stage, monkeypatch):
    source = stage.write(
        "texts.jsonl", json.dumps({"id": "a", "vars": {"text": "百年老店的豆浆油条" * 20}}) + "\n"
    )

    def planned(encoding: str) -> int:
        monkeypatch.setenv("AIRFLOW__LLMBATCH__DEFAULT_ENCODING", encoding)
        stage.run(stage.split(source=source, model="nobody-knows"))
        plan = json.loads((stage.results_path / "d" / "r" / "s" / "plan.json").read_text())
        return plan["prompt_tokens"]

    assert planned("cl100k_base") > planned("o200k_base")
