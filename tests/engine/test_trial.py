"""A dispatch follows its rollout, also when its steps cannot be read any more."""

from __future__ import annotations

import asyncio

import pytest

from airflow_provider_llmbatch.engine.items import Item
from airflow_provider_llmbatch.engine.prompt import inline_prompt
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.rollout.steps import Steps, entry_file
from airflow_provider_llmbatch.engine.rollout.terms import Rules, Terms, Version
from airflow_provider_llmbatch.engine.trial import Trial
from airflow_provider_llmbatch.errors import InputError
from tests.engine.rollout.trials import ANN, NOW

OLD, NEW = inline_prompt("Old.", "{{ text }}"), inline_prompt("New.", "{{ text }}")
TERMS = Terms(dag="d", name="r", base=Version(prompt=OLD.ref), candidate=Version(prompt=NEW.ref))
RULES = Rules(ladder=(0.5, 1.0))
ITEMS = [Item(index=n, id=str(n), vars={"text": "x"}) for n in range(200)]


@pytest.fixture
def steps(tmp_path) -> Steps:
    steps = Steps(open_folder(str(tmp_path)))
    steps.open(TERMS, RULES, at=NOW)
    return steps


def follower(tmp_path, **fields) -> Trial:
    return Trial(Steps(open_folder(str(tmp_path))), OLD, NEW, **fields)


def candidates(trial: Trial) -> int:
    return sum(trial.arm(item) == "candidate" for item in ITEMS)


async def until(condition) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")


async def test_a_climb_changes_nothing_within_a_dispatch_and_a_pause_does(tmp_path, steps):
    trial = follower(tmp_path, every_s=0.01)
    async with trial.followed("/results", 0, at=NOW):
        half = candidates(trial)
        assert 60 < half < 140
        steps.act("promote", RULES, by=ANN, why="", at=NOW)
        for _ in range(30):
            await asyncio.sleep(0.01)
            assert candidates(trial) == half
        steps.act("pause", RULES, by=ANN, why="", at=NOW)
        await until(lambda: candidates(trial) == 0)
    later = follower(tmp_path)
    steps.act("resume", RULES, by=ANN, why="", at=NOW)
    async with later.followed("/results", 0, at=NOW):
        assert candidates(later) == half


async def test_who_cannot_read_the_steps_gives_nobody_the_candidate(tmp_path, steps):
    trial = follower(tmp_path, every_s=0.01)
    async with trial.followed("/results", 0, at=NOW):
        broken = tmp_path / entry_file(2)
        broken.write_text("{")
        await until(lambda: candidates(trial) == 0)
        broken.unlink()
        await until(lambda: candidates(trial) > 60)


async def test_an_arm_that_is_named_has_all_items_and_leaves_no_note(tmp_path, steps):
    trial = follower(tmp_path, arm="candidate")
    async with trial.followed("/results", 0, at=NOW):
        assert candidates(trial) == len(ITEMS)
    assert trial.prompt is NEW
    assert steps.notes() == []


def test_answers_of_two_rollouts_or_arms_are_not_mixed(tmp_path, steps):
    both, only = follower(tmp_path), follower(tmp_path, arm="base")
    assert both.identity == follower(tmp_path).identity
    assert both.identity != only.identity


def test_a_prompt_with_another_content_is_refused(tmp_path, steps):
    with pytest.raises(InputError, match="restore the file"):
        Trial(Steps(open_folder(str(tmp_path))), OLD, OLD)
