from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.rollout.standing import Live
from airflow_provider_llmbatch.engine.rollout.steps import Steps, entry_file
from airflow_provider_llmbatch.engine.rollout.verdict import Verdict
from airflow_provider_llmbatch.errors import ConfigurationError, InputError, StoreError
from tests.engine.rollout.trials import ANN, NOW, RULES, TERMS, opened, said, version


def close(steps: Steps, occasion: str, *verdicts: Verdict, used=(), mismatch_p=None):
    return steps.close_round(
        said(*verdicts), RULES, occasion=occasion, used=used, mismatch_p=mismatch_p, at=NOW
    )


def test_a_rollout_climbs_pauses_by_itself_and_is_resumed_by_a_person_only(tmp_path):
    steps, worker = opened(tmp_path), Steps(open_folder(str(tmp_path)))
    assert worker.standing().rate == 0.05
    assert close(steps, "1", Verdict.SAME).move.action == "promote"
    assert worker.standing().rate == 0.15
    close(steps, "2", Verdict.WORSE)
    assert close(steps, "3", Verdict.WORSE).move.action == "pause"
    assert (worker.standing().state, worker.standing().rate) == ("paused", 0.0)
    for occasion in ("4", "5"):
        assert close(steps, occasion, Verdict.BETTER).move.action == "hold"
    assert (worker.standing().state, worker.standing().rate) == ("paused", 0.0)
    steps.act("resume", RULES, by=ANN, why="the judge was wrong", at=NOW + 9)
    standing = worker.standing()
    assert (standing.state, standing.rate, standing.since) == ("running", 0.05, NOW + 9)
    assert standing.last == "resume by ann: the judge was wrong"
    # What was worse before the pause is forgiven: it takes two rounds again.
    assert close(steps, "6", Verdict.WORSE).move.action == "hold"


def test_people_pause_and_climb_as_well_and_nobody_without_a_name_does(tmp_path):
    steps = opened(tmp_path)
    assert steps.act("promote", RULES, by=ANN, why="", at=NOW).rate == 0.15
    with pytest.raises(InputError, match="nothing to resume"):
        steps.act("resume", RULES, by=ANN, why="", at=NOW)
    assert steps.act("pause", RULES, by=ANN, why="odd answers", at=NOW).state == "paused"
    with pytest.raises(InputError, match="nothing to promote"):
        steps.act("promote", RULES, by=ANN, why="", at=NOW)
    with pytest.raises(InputError, match="only a person"):
        steps.act("resume", RULES, by=replace(ANN, name=""), why="", at=NOW)


def test_of_many_who_promote_what_they_have_seen_one_does_and_a_pause_needs_no_look(tmp_path):
    opened(tmp_path)
    refused: list[str] = []

    def promote() -> None:
        steps = Steps(open_folder(str(tmp_path)))
        try:
            steps.act("promote", RULES, by=ANN, why="", at=NOW, after=1)
        except InputError as error:
            refused.append(str(error))

    people = [threading.Thread(target=promote) for _ in range(8)]
    for one in people:
        one.start()
    for one in people:
        one.join()
    steps = Steps(open_folder(str(tmp_path)))
    assert (steps.standing().rate, steps.standing().number) == (0.15, 2)
    assert len(refused) == 7
    assert all("has changed: promote by ann" in told for told in refused)
    assert steps.act("pause", RULES, by=ANN, why="", at=NOW, after=1).state == "paused"
    with pytest.raises(InputError, match="has changed: pause by ann"):
        steps.act("resume", RULES, by=ANN, why="", at=NOW, after=2)
    assert steps.act("resume", RULES, by=ANN, why="", at=NOW, after=3).state == "running"


def test_a_person_takes_it_to_all_units_at_once_and_nobody_above_the_top_or_down(tmp_path):
    steps = opened(tmp_path)
    assert steps.act("promote", RULES, by=ANN, why="", at=NOW, to=1.0).rate == 1.0
    for to in (None, 0.5, 1.0, 1.5, float("nan")):
        with pytest.raises(InputError, match="nothing to promote"):
            steps.act("promote", RULES, by=ANN, why="", at=NOW, to=to)


def test_what_people_have_done_is_told_once_whoever_asks(tmp_path):
    steps = opened(tmp_path)
    close(steps, "1", Verdict.SAME)
    steps.act("pause", RULES, by=ANN, why="odd", at=NOW)
    steps.act("resume", RULES, by=ANN, why="", at=NOW)
    found = [Steps(open_folder(str(tmp_path))).untold() for _ in range(2)]
    assert [[(step.number, step.action) for step in each] for each in found] == [
        [(3, "pause"), (4, "resume")],
        [],
    ]
    steps.act("promote", RULES, by=ANN, why="", at=NOW)
    assert [step.action for step in steps.untold()] == ["promote"]


def test_a_retry_finds_the_round_that_it_has_closed_and_closes_no_second_one(tmp_path):
    first = close(opened(tmp_path), "once", Verdict.SAME)
    again = close(Steps(open_folder(str(tmp_path))), "once", Verdict.WORSE)
    assert again == first
    assert opened(tmp_path).standing().rounds == 1


def test_of_many_who_close_rounds_at_once_each_is_logged_and_none_twice(tmp_path):
    opened(tmp_path)
    rounds = [
        threading.Thread(target=close, args=(Steps(open_folder(str(tmp_path))), str(n % 10), Verdict.WORSE))
        for n in range(30)
    ]
    for one in rounds:
        one.start()
    for one in rounds:
        one.join()
    steps = Steps(open_folder(str(tmp_path)))
    standing = steps.standing()
    assert sorted(one.occasion for one in steps.rounds) == sorted(map(str, range(10)))
    assert [one.number for one in steps.rounds] == list(range(1, 11))
    assert (standing.state, standing.streaks) == ("paused", {"token_f1": 10})
    assert [one.move.action for one in steps.rounds].count("pause") == 1


def test_what_is_tried_stays_the_same(tmp_path):
    opened(tmp_path)
    for other in (
        replace(TERMS, candidate=version("3")),
        replace(TERMS, candidate=version("2", temperature=1)),
        replace(TERMS, unit="group"),
    ):
        with pytest.raises(InputError, match="another name"):
            opened(tmp_path, other)
    assert opened(tmp_path).standing().terms == TERMS


def test_a_version_is_not_tried_against_itself(tmp_path):
    with pytest.raises(ConfigurationError, match="two versions that differ"):
        replace(TERMS, candidate=TERMS.base)
    assert replace(TERMS, candidate=version("1", temperature=1)).candidate.params == {"temperature": 1}


def test_what_was_never_opened_cannot_be_followed(tmp_path):
    with pytest.raises(InputError, match="LLMBatchRolloutOperator"):
        Steps(open_folder(str(tmp_path))).standing()


def test_a_log_that_has_lost_its_beginning_or_holds_rubbish_is_not_read_as_another(tmp_path):
    steps = opened(tmp_path)
    close(steps, "1", Verdict.SAME)
    first, second = (tmp_path / entry_file(number) for number in (1, 2))
    content = second.read_text()
    second.write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        Steps(open_folder(str(tmp_path))).standing()
    first.write_text(content)
    with pytest.raises(StoreError, match="opening"):
        Steps(open_folder(str(tmp_path))).standing()


def test_live_answers_count_once_and_keep_the_rate_that_they_began_with(tmp_path):
    steps = opened(tmp_path)
    note = Live(key="a", result_path="/r", chunk=0, rate=0.05, at=NOW)
    assert steps.leave_note(note) == note
    assert steps.leave_note(replace(note, rate=0.5, at=NOW + 60)) == note
    steps.leave_note(replace(note, key="b", at=NOW - 60))
    assert [each.key for each in steps.notes()] == ["b", "a"]
    close(steps, "1", Verdict.SAME, used=["b"])
    assert [each.key for each in steps.notes()] == ["a"]


def test_after_many_rounds_the_log_is_read_in_packs_and_says_the_same(tmp_path):
    steps = opened(tmp_path)
    for number in range(120):
        close(steps, str(number), Verdict.NOT_ENOUGH)
    for number in range(1, 100):
        (tmp_path / entry_file(number)).unlink()
    fresh = Steps(open_folder(str(tmp_path)))
    assert fresh.standing() == steps.standing()
    assert fresh.standing().rounds == 120
