"""The pages of rollouts in a real browser."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.rollout.standing import Step
from airflow_provider_llmbatch.engine.rollout.steps import Steps, entry_file
from airflow_provider_llmbatch.operators.places import rollout_folder
from airflow_provider_llmbatch.operators.rollout import LLMBatchRolloutOperator
from airflow_provider_llmbatch.simulator.server import running
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings
from tests.console.conftest import BELOW
from tests.console.hostile import PAYLOADS
from tests.console.test_looks import AXE, NEVER_MADE, _faults
from tests.engine.rollout.trials import ANN, NOW, paired
from tests.engine.rollout.whole import DAG, NAME, RIGHT, RULES, WRONG, close_round, rollout
from tests.operators.stage import Service, Stage

PAGE = f"/llmbatch/dags/{DAG}/rollouts/{NAME}"
LATENCY = paired([400.0, 500.0, 450.0], [300.0, 700.0], "latency_ms", is_paired=False, lower_is_better=True)


@pytest.fixture
def steps(results_path) -> Steps:
    return rollout(results_path)


@pytest.fixture
def tried(results_path, steps) -> Steps:
    """Return a rollout of two rounds, in which the candidate is worse in one pair."""
    for _ in range(2):
        close_round(results_path, steps, live=[LATENCY])
    return steps


def rows(page: Any, label: str) -> list[str]:
    return page.get_by_role("group", name=label).locator("tbody tr").all_inner_texts()


def test_a_rollout_shows_what_its_rounds_have_found_and_which_pairs_differ(visit, tried):
    page = visit("/llmbatch/rollouts")
    page.get_by_role("link", name=f"{DAG} · {NAME}").click()
    page.get_by_role("heading", name="running: 50 % get the candidate").wait_for()
    page.locator(".chart canvas").nth(1).wait_for()
    assert [line.split("\t")[0] for line in rows(page, "Metrics of the round")] == ["token_f1", "latency_ms"]
    (latest, _) = tried.rounds[::-1]
    assert f"{latest.comparisons[0].effect:+.2f}" in rows(page, "Metrics of the round")[0]
    assert "same" in rows(page, "Metrics of the round")[0]
    pair = page.locator("section", has=page.get_by_role("heading", name="item-0"))
    assert RIGHT[0] in pair.get_by_role("group", name="What the base said").inner_text()
    assert WRONG[0] in pair.get_by_role("group", name="What the candidate said").inner_text()
    assert page.get_by_role("img", name="Effect of token_f1 by round, 2 in all").count() == 1
    page.get_by_label("Show pairs").select_option("better")
    page.get_by_text("There is no such pair.").wait_for()
    page.get_by_label("Show pairs").select_option("worse")
    page.get_by_text("The golden set was not a file").wait_for()
    page.get_by_role("combobox", name="Metric").select_option("latency_ms")
    page.get_by_text("There are no pairs by this metric").wait_for()
    page.get_by_role("img", name="Scores of latency_ms").wait_for()
    page.get_by_role("combobox", name="Round").select_option("1")
    page.get_by_role("heading", name="Scores of latency_ms in round 1").wait_for()
    assert not page.errors


def test_the_keyboard_alone_pauses_and_resumes_with_a_reason(visit, steps):
    page = visit(PAGE)
    page.get_by_text("No round has been closed yet").wait_for()
    page.get_by_role("button", name="Pause …").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=f"Pause: {NAME}").wait_for()
    page.keyboard.type("odd answers")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="paused: all get the base (it was at 5 %)").wait_for()
    page.get_by_text("paused by ann: odd answers").first.wait_for()
    # What takes the place of what was pressed has the focus.
    page.locator("button:focus", has_text="Resume at 5 %").wait_for()
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert steps.standing().state == "paused"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="running: 5 % get the candidate").wait_for()
    page.get_by_text("Steps (the latest 3 of 3)").click()
    assert "odd answers" in page.locator("details tbody").inner_text()
    assert [step.by.name for step in steps.history if step.number <= steps.standing().number] == [
        "",
        "ann",
        "ann",
    ]
    assert not page.errors


def promote(page: Any, to: str) -> None:
    page.get_by_role("button", name=f"Promote to {to} …").click()
    page.locator("dialog").get_by_role("button", name=f"Promote to {to}").click()


def test_of_two_people_who_promote_one_does_and_the_other_is_told_and_shown_it(visit, results_path, steps):
    close_round(results_path, steps, metrics=["token_f1", "tests.engine.rollout.answers:Broken"])
    ann, ben = visit("about:blank"), visit(PAGE, name="ben")
    ann.clock.install()
    ann.goto(ann.context.site + PAGE)
    ben.get_by_role("button", name="Promote to 100 % …").click()
    # What could not run is told to whoever promotes nevertheless.
    ben.get_by_text("In round 1: broken not run.").wait_for()
    promote(ann, "15 %")
    ann.get_by_role("heading", name="running: 15 % get the candidate").wait_for()
    ben.locator("dialog").get_by_role("button", name="Promote to 100 %").click()
    ben.locator(".notice", has_text="has changed: promote by ann").wait_for()
    ben.get_by_role("heading", name="running: 15 % get the candidate").wait_for()
    assert steps.standing().rate == 0.15
    promote(ben, "100 %")
    ben.get_by_role("heading", name="running: 100 % get the candidate").wait_for()
    assert ben.get_by_role("button", name="Promote").count() == 0
    # The other page finds out by itself.
    ann.clock.run_for(6_000)
    ann.get_by_role("heading", name="running: 100 % get the candidate").wait_for()
    assert not ann.errors


def test_a_reader_sees_everything_and_buttons_that_say_why_they_are_off(visit, tried):
    page = visit(PAGE, "viewer")
    page.get_by_text("one has to be allowed to edit its DAG").wait_for()
    for button in page.locator("section button").all():
        assert button.is_disabled()
    page.get_by_role("heading", name="item-0").wait_for()


@pytest.fixture
def stage(tmp_path, monkeypatch, results_path) -> Any:
    """Return a stage whose service answers slowly."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")
    with running(SimulatorSettings(rpm=10**6, tpm=10**9, latency_s=0.1)) as url:
        connection = '{"conn_type": "llmbatch", "host": "%s", "password": "sk-0", "extra": %s}'
        limits = '{"limits": [{"max_in_flight": 6}]}'
        monkeypatch.setenv("AIRFLOW_CONN_LLMBATCH_DEFAULT", connection % (url, limits))
        yield Stage(tmp_path, Service(url))


def test_a_pause_by_click_is_seen_by_a_dispatch_that_runs(visit, stage):
    for version in "12":
        stage.write(
            f"prompts/answer/{version}.yaml", f'system: "Be brief {version}."\nuser: "{{{{ text }}}}"\n'
        )
    terms = {"rollout": "kinder", "base": "answer@1", "candidate": "answer@2", "ladder": [0.5, 1.0]}
    stage.run(LLMBatchRolloutOperator(task_id="open", dag=stage.dag(), **terms))
    page = visit("/llmbatch/dags/d/rollouts/kinder")
    page.get_by_role("button", name="Pause …").click()
    task = stage.dispatch(source=stage.items(300), prompt="rollout:kinder")
    dispatch = threading.Thread(target=stage.run, args=(task,))
    dispatch.start()
    while dispatch.is_alive() and len(stage.service.arrivals()) < 30:
        page.wait_for_timeout(50)
    page.locator("dialog").get_by_role("button", name="Pause").click()
    page.get_by_role("heading", name="paused").wait_for()
    dispatch.join()
    (pause,) = [step for step in log_of(stage) if step.action == "pause"]
    rows = stage.rows()
    assert Counter(row.variant for row in rows if row.started_at < pause.at)["candidate"] > 5
    # The steps are read every two seconds; a second more for a busy machine.
    after = [row.variant for row in rows if row.started_at > pause.at + 3]
    assert len(after) > 20
    assert set(after) == {"base"}


def log_of(stage: Stage) -> list[Step]:
    steps = Steps(open_folder(rollout_folder(str(stage.results_path), "d", "kinder")))
    steps.standing()
    return steps.history


def test_no_hostile_text_of_a_rollout_comes_to_life(visit, tmp_path, results_path, steps):
    """It stands in names of metrics and people, in ids, questions, answers, errors, reasons, on all pages."""
    count = len(PAYLOADS)
    base = [Outcome.REFUSED if n % 9 == 0 else text for n, text in enumerate(PAYLOADS)]
    hostile = [paired([0.1, 0.2], [0.3, 0.9], text, is_paired=False, note=text) for text in PAYLOADS[::8]]
    broken = paired([], [], PAYLOADS[3], failure=PAYLOADS[4])
    ids = [f"{n} {text}" for n, text in enumerate(PAYLOADS)]
    items = [{"id": id, "prompt": text, "reference": text} for id, text in zip(ids, PAYLOADS, strict=True)]
    source = tmp_path / "golden.jsonl"
    source.write_text("".join(json.dumps(item) + "\n" for item in items))
    said = {"right": ["right"] * count, "ids": ids, "live": [*hostile, broken], "source": str(source)}
    close_round(
        results_path,
        steps,
        base,
        [{text: text} if n % 2 else "right" for n, text in enumerate(PAYLOADS)],
        **said,
    )
    steps.act("pause", RULES, by=replace(ANN, name=PAYLOADS[0]), why=PAYLOADS[1], at=NOW)
    page = visit("/llmbatch/rollouts")
    page.add_init_script("window.fired = () => { window.isAlive = true }; window.alert = window.fired")
    page.reload()
    page.locator("tbody tr").first.wait_for()
    assert not page.evaluate("window.isAlive")
    page.goto(page.context.site + PAGE)
    page.get_by_role("combobox", name="Metric").select_option("token_f1")
    page.get_by_text("Steps (the latest").click()
    seen = 0
    while True:
        page.locator("section.box h3").first.wait_for()
        seen += page.locator("section.box h3").count()
        assert (
            page.get_by_role("group", name="What was asked").count() == page.locator("section.box h3").count()
        )
        made = page.evaluate("[...document.querySelectorAll('main *')].map((each) => each.tagName)")
        assert not set(made) & NEVER_MADE
        following = page.get_by_role("button", name="Next pairs")
        if following.is_disabled():
            break
        told = page.get_by_text(" pairs", exact=False).last.inner_text()
        following.click()
        page.wait_for_function("(told) => !document.body.innerText.includes(told)", arg=told)
    assert seen > count / 3
    page.get_by_role("combobox", name="Metric").select_option(PAYLOADS[8])
    page.locator(".chart canvas").nth(1).wait_for()
    page.get_by_role("button", name="Resume").click()
    page.locator("dialog[open]").wait_for()
    assert not page.evaluate("window.isAlive")
    assert not page.errors


def test_everybody_can_use_the_page_of_a_rollout(visit, tried):
    page = visit(PAGE)
    page.evaluate(AXE)
    for width in (1280, 400):
        for theme in ("light", "dark"):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme)
            page.get_by_role("heading", name="item-0").wait_for()
            page.locator(".chart canvas").nth(1).wait_for()
            assert _faults(page) == [], (width, theme)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, theme)
    page.get_by_role("button", name="Pause …").click()
    page.locator("dialog[open]").wait_for()
    assert _faults(page) == []
    page.goto(page.context.site + "/llmbatch/rollouts")
    page.locator("tbody tr").first.wait_for()
    page.evaluate(AXE)
    assert _faults(page) == []
    assert not page.errors
    assert all(url.startswith(f"{page.context.site}/llmbatch/") for url in page.asked)


def test_what_is_not_there_and_what_cannot_be_read_is_said(visit, results_path):
    page = visit("/llmbatch/rollouts")
    page.get_by_text("No rollout has been opened").wait_for()
    page.goto(page.context.site + PAGE)
    page.get_by_text(f"The DAG {DAG} has opened no rollout {NAME}").wait_for()
    steps = rollout(results_path)
    first = Path(rollout_folder(results_path, DAG, NAME)) / entry_file(1)
    content = first.read_text()
    first.write_text("{")
    page.get_by_role("button", name="Try again").click()
    page.get_by_text("cannot be read").wait_for()
    first.write_text(content)
    page.get_by_role("button", name="Try again").click()
    page.get_by_role("heading", name="running: 5 % get the candidate").wait_for()
    close_round(results_path, steps)
    (first.parent / "grades-1.jsonl").unlink()
    page.reload()
    page.get_by_text("is gone; clear the grade task").nth(1).wait_for()
    page.locator(".chart canvas").wait_for()


def test_below_a_path_a_rollout_and_its_charts_are_below_it(visit, tried, monkeypatch, site):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", site + BELOW)
    page = visit(f"{BELOW}/llmbatch/dags/{DAG}/rollouts")
    page.get_by_role("link", name=f"{DAG} · {NAME}").click()
    page.locator(".chart canvas").nth(1).wait_for()
    promote(page, "100 %")
    page.get_by_role("heading", name="running: 100 % get the candidate").wait_for()
    assert not page.errors
    assert all(url.startswith(f"{site}{BELOW}/llmbatch/") for url in page.asked)
