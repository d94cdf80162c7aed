from __future__ import annotations

import pytest

from airflow_provider_llmbatch.engine.items import Outcome, Usage
from airflow_provider_llmbatch.engine.review.decision import Wish
from airflow_provider_llmbatch.engine.review.find import Filter, find, neighbours
from airflow_provider_llmbatch.engine.review.rounds import Round
from tests.engine.review.queues import ANN, BEN, NOW, failed, opened


@pytest.fixture
def round(tmp_path) -> Round:
    results = [failed(n, usage=Usage(prompt=10 * (5 - n))) for n in range(6)]
    results[4] = failed(4, Outcome.REFUSED, id="Zebra", served_model="m-9", error=None)
    queue = opened(tmp_path, results)
    queue.decide(1, ["0-1"], Wish(kind="skip"), ANN, at=NOW)
    queue.decide(1, ["0-3"], Wish(kind="retry"), BEN, at=NOW)
    return queue.round()


@pytest.mark.parametrize(
    ("wanted", "indexes"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"outcome": {"refused"}}, [4]),
        ({"outcome": {"refused", "invalid_output"}}, [0, 1, 2, 3, 4, 5]),
        ({"error": {"schema"}}, [0, 1, 2, 3, 5]),
        ({"model": {"m-9"}}, [4]),
        ({"reason": {"sample"}}, []),
        ({"decision": {"open"}}, [0, 2, 4, 5]),
        ({"decision": {"open", "skip"}}, [0, 1, 2, 4, 5]),
        ({"decided_by": "2"}, [3]),
        ({"q": "zEB"}, [4]),
        ({"q": "item-", "decision": {"open"}}, [0, 2, 5]),
    ],
)
def test_a_filter_leaves_the_tickets_that_meet_all_of_it(round, wanted, indexes):
    wanted = {name: frozenset(value) if isinstance(value, set) else value for name, value in wanted.items()}
    assert [ticket.index for ticket in find(round, Filter(**wanted))] == indexes


@pytest.mark.parametrize(
    ("order", "indexes"),
    [
        ("index", [0, 1, 2, 3, 4, 5]),
        ("-index", [5, 4, 3, 2, 1, 0]),
        ("item_id", [4, 0, 1, 2, 3, 5]),
        ("tokens", [4, 5, 3, 2, 1, 0]),
        ("-attempts", [2, 5, 1, 4, 0, 3]),
    ],
)
def test_tickets_come_in_the_order_that_was_asked_for(round, order, indexes):
    assert [ticket.index for ticket in find(round, Filter(), order)] == indexes


def test_neighbours_are_the_nearest_that_wait(round):
    assert neighbours(round, round.tickets["0-2"]) == ("0-0", "0-4")
    assert neighbours(round, round.tickets["0-0"]) == (None, "0-2")
    assert neighbours(round, round.tickets["0-5"]) == ("0-4", None)


def test_counts_add_up(round):
    counts = round.counts()
    assert counts["outcome"] == {"invalid_output": 5, "refused": 1}
    assert counts["decision"] == {"open": 4, "skip": 1, "retry": 1}
    assert counts["error"] == {"schema": 5}


def test_texts_are_read_from_where_the_ticket_points(round):
    for index in (0, 3, 5):
        texts = round.texts(round.tickets[f"0-{index}"])
        assert texts["item"]["vars"] == {"text": f"text of {index}"}
        assert texts["row"]["index"] == index
