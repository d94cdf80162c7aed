"""Deciding and closing, by several people and processes, on a folder that all of them write to."""

from __future__ import annotations

import json
import multiprocessing
import threading
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.journal import PACK
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.review.decision import Person, Wish
from airflow_provider_llmbatch.engine.review.queue import Queue
from airflow_provider_llmbatch.errors import InputError, StoreError
from tests.engine.review.queues import ANN, BEN, NOW, failed, opened

SKIP, RETRY = Wish(kind="skip"), Wish(kind="retry")


def another(queue: Queue) -> Queue:
    """Return the same queue as another process has it."""
    other = Queue(open_folder(queue.storage.uri))
    other.refresh()
    return other


@pytest.fixture
def queue(tmp_path) -> Queue:
    return opened(tmp_path, [failed(n) for n in range(4)])


def test_a_decision_stands_in_every_process_and_after_a_restart(queue):
    seen = another(queue)
    answer = queue.decide(1, ["0-0", "0-2"], Wish(kind="retry", model="m-2", why="glitch"), ANN, at=NOW)
    assert answer.decided == ("0-0", "0-2")
    for other in (seen, another(queue)):
        other.refresh()
        decision = other.round().decisions["0-2"]
        assert (decision.wish.model, decision.wish.why, decision.by) == ("m-2", "glitch", ANN)
        assert [ticket.id for ticket in other.round().open_tickets()] == ["0-1", "0-3"]


def test_the_second_reviewer_gets_a_conflict_that_names_the_first(queue):
    other = another(queue)
    queue.decide(1, ["0-0"], SKIP, ANN, at=NOW)
    answer = other.decide(1, ["0-0", "0-1"], RETRY, BEN, at=NOW)
    assert answer.decided == ("0-1",)
    ((ticket, standing),) = answer.conflicts
    assert (ticket, standing.by, standing.wish) == ("0-0", ANN, SKIP)
    assert another(queue).round().decisions["0-0"].by == ANN


def test_the_same_decision_of_the_same_person_counts_once(queue):
    queue.decide(1, ["0-0"], SKIP, ANN, at=NOW)
    answer = another(queue).decide(1, ["0-0"], SKIP, ANN, at=NOW + 1)
    assert (answer.decided, answer.already) == ((), ("0-0",))
    assert len(another(queue).round().history) == 1


def test_a_person_changes_a_decision_only_if_it_is_the_one_that_was_seen(queue):
    queue.decide(1, ["0-0"], SKIP, ANN, at=NOW)
    seen = queue.round().decisions["0-0"].id
    assert queue.decide(1, ["0-0"], RETRY, ANN, at=NOW).conflicts
    assert queue.decide(1, ["0-0"], RETRY, ANN, at=NOW, replaces=seen).decided == ("0-0",)
    assert queue.decide(1, ["0-0"], SKIP, BEN, at=NOW, replaces=seen).conflicts
    assert [decision.wish.kind for decision in another(queue).round().history] == ["skip", "retry"]


def test_a_closed_round_takes_no_decision_but_keeps_what_was_decided(queue):
    queue.decide(1, ["0-0"], SKIP, ANN, at=NOW)
    another(queue).close("person", at=NOW)
    queue.close("deadline", at=NOW + 1)
    answer = queue.decide(1, ["0-1"], SKIP, ANN, at=NOW)
    assert (answer.decided, answer.conflicts) == ((), [("0-1", None)])
    assert queue.decide(1, ["0-0"], SKIP, ANN, at=NOW).already == ("0-0",)
    assert (queue.round().closed_by, queue.round().state, queue.state) == ("person", "closed", "applying")


@pytest.mark.parametrize(
    ("default", "acceptable", "kinds"),
    [
        ("skip", False, ["retry", "skip", "skip", "skip"]),
        ("retry", False, ["retry", "retry", "retry", "retry"]),
        ("accept", True, ["retry", "accept", "accept", "accept"]),
        ("accept", False, ["retry", "open", "open", "open"]),
        ("leave", False, ["retry", "open", "open", "open"]),
        (None, False, ["retry", "open", "open", "open"]),
    ],
)
def test_what_nobody_has_decided_becomes_the_stated_default(tmp_path, default, acceptable, kinds):
    queue = opened(tmp_path, [failed(n) for n in range(4)], acceptable=acceptable, default=default)
    queue.decide(1, ["0-0"], RETRY, ANN, at=NOW)
    queue.close("deadline", at=NOW)
    round = another(queue).round()
    assert [round.kind_of(ticket) for ticket in round.tickets.values()] == kinds
    assert {d.by for t, d in round.decisions.items() if t != "0-0"} <= {Person()}


@pytest.mark.parametrize(
    ("quorum", "tickets", "needed"), [(1.0, 3, 3), (0.5, 3, 2), (0.9, 10, 9), (0.0, 3, 0)]
)
def test_a_quorum_is_a_share_of_the_tickets(tmp_path, quorum, tickets, needed):
    queue = opened(tmp_path, [failed(n) for n in range(tickets)], quorum=quorum)
    assert queue.round().needed == needed
    for number in range(needed):
        assert not queue.round().is_complete
        queue.decide(1, [f"0-{number}"], SKIP, ANN, at=NOW)
    assert queue.round().is_complete


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"kind": "delete"}, "retry, edit, accept, skip"),
        ({"kind": "skip", "model": "m-2"}, "takes no model"),
        ({"kind": "retry", "output": {}}, "takes no output"),
        ({"kind": "retry", "max_tokens": 0}, "whole number from 1"),
        ({"kind": "skip", "why": "x" * 2001}, "2,000 at most"),
    ],
)
def test_what_does_not_go_together_is_refused(wish, words):
    with pytest.raises(InputError, match=words):
        Wish(**wish)


@pytest.mark.parametrize(
    ("tickets", "wish", "words"),
    [
        (["0-9"], SKIP, "no ticket '0-9'"),
        (["0-0"], Wish(kind="retry", model="m-9"), "'m-9' is not offered for a retry; there is m-2"),
        (["0-0"], Wish(kind="retry", prompt="p@9"), "there is p@1, p@2"),
    ],
)
def test_what_is_not_there_cannot_be_decided(queue, tickets, wish, words):
    with pytest.raises(InputError, match=words):
        queue.decide(1, tickets, wish, ANN, at=NOW)
    assert not another(queue).round().history


def test_only_what_satisfies_the_schema_can_be_accepted(queue):
    answer = queue.decide(1, ["0-0"], Wish(kind="accept"), ANN, at=NOW)
    assert not answer.decided
    assert "does not satisfy the schema" in answer.refused[0][1]


def _decide_all(path: str, name: str, tickets: int, start: multiprocessing.Event) -> None:
    queue = Queue(open_folder(path))
    queue.refresh()
    start.wait()
    for number in range(tickets):
        queue.decide(1, [f"0-{number}"], Wish(kind="skip", why=name), Person(id=name), at=NOW)


def test_processes_that_decide_the_same_tickets_decide_each_once(tmp_path):
    tickets, people = 40, ("a", "b")
    opened(tmp_path, [failed(n) for n in range(tickets)])
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    processes = [
        context.Process(target=_decide_all, args=(str(tmp_path), name, tickets, start)) for name in people
    ]
    for process in processes:
        process.start()
    start.set()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    queue = Queue(open_folder(str(tmp_path)))
    queue.refresh()
    history = queue.round().history
    assert sorted(ticket for decision in history for ticket in decision.tickets) == sorted(
        f"0-{number}" for number in range(tickets)
    )


def test_threads_of_one_process_lose_nothing_either(tmp_path):
    tickets = PACK + 7
    queue = opened(tmp_path, [failed(n) for n in range(tickets)])

    def decide(offset: int) -> None:
        for number in range(offset, tickets, 3):
            queue.decide(1, [f"0-{number}"], SKIP, ANN, at=NOW)

    threads = [threading.Thread(target=decide, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = another(queue)
    assert len(again.round().history) == len(again.round().decisions) == tickets
    packs = [name for name in queue.storage.names() if name.startswith("pack-")]
    assert len(packs) == 1
    (Path(tmp_path) / packs[0]).unlink()
    assert len(another(queue).round().decisions) == tickets


@pytest.mark.parametrize("name", ["log-01-000001.json", "round-01.json", "tickets-01-first.jsonl"])
@pytest.mark.parametrize("content", ["", "{}", "\x00", '{"schema_version": 1}'])
def test_what_cannot_be_read_is_not_taken_for_missing(queue, tmp_path, name, content):
    queue.decide(1, ["0-0"], SKIP, ANN, at=NOW)
    (tmp_path / name).write_text(content)
    with pytest.raises(StoreError, match=f"{name} cannot be read"):
        assert another(queue).round().tickets


def test_an_entry_without_its_fields_is_no_decision(queue, tmp_path):
    queue.decide(1, ["0-0"], SKIP, ANN, at=NOW)
    (tmp_path / "log-01-000001.json").write_text('{"type": "decision"}')
    with pytest.raises(StoreError, match="Entry 1 of round 1"):
        another(queue)


def test_a_newer_version_of_a_file_is_told_apart_from_a_broken_one(queue, tmp_path):
    head = json.loads((tmp_path / "round-01.json").read_text())
    (tmp_path / "round-01.json").write_text(json.dumps({**head, "schema_version": 2}))
    with pytest.raises(InputError, match="schema_version 2"):
        another(queue)


def test_somebody_is_told_of_a_round_once(queue):
    assert queue.claim_alert(1)
    assert not another(queue).claim_alert(1)
    assert queue.claim_alert(2)


def test_a_round_follows_when_the_one_before_was_applied(queue, tmp_path):
    seen = another(queue)
    queue.close("all", at=NOW)
    queue.round().applied()
    opened(tmp_path, [failed(1)])
    seen.refresh()
    assert [round.state for round in seen.rounds] == ["applied", "open"]
    assert seen.state == "open"
    seen.finish([{"items": 1}], occasion="once", at=NOW)
    assert another(queue).state == "done"
    seen.reopen()
    assert another(queue).state == "open"
