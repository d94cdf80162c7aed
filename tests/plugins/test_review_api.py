"""The review API behind Airflow's permissions, over queues on real folders."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import ItemError, Outcome
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.review.inbox import Inbox, Post
from airflow_provider_llmbatch.engine.review.queue import Queue
from airflow_provider_llmbatch.operators.places import inbox_folder, review_folder
from airflow_provider_llmbatch.plugins import console
from airflow_provider_llmbatch.plugins.api import routes
from airflow_provider_llmbatch.plugins.api.gates import may_read_connections
from airflow_provider_llmbatch.plugins.app import create_app
from tests.engine.review.queues import NOW, failed, opened

WHO = ("billing", "manual__2026-11-29T12:00:00+00:00", "review")
API = "/llmbatch/api/v1"
QUEUE = f"{API}/dags/{WHO[0]}/runs/{WHO[1].replace('+', '%2B')}/tasks/{WHO[2]}/review"


@pytest.fixture(autouse=True)
def results_path(tmp_path, monkeypatch) -> str:
    """Return where results lie, each time somewhere else."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__RESULTS_PATH", str(tmp_path / "results"))
    return str(tmp_path / "results")


@pytest.fixture
def open_queue(results_path) -> Callable[..., Queue]:
    """Return a function that opens a queue."""

    def _open(results: Any = None, who: tuple[str, ...] = WHO, opened_at: float = NOW, **terms: Any) -> Queue:
        rows = [failed(n) for n in range(4)] if results is None else results
        queue = opened(review_folder(results_path, *who), rows, **terms)
        post = Post(dag_id=who[0], run_id=who[1], task_id=who[2], map_index=-1, opened_at=opened_at)
        Inbox(open_folder(inbox_folder(results_path))).put(post, "open")
        return queue

    return _open


@pytest.fixture
def queue(open_queue) -> Queue:
    return open_queue()


@pytest.fixture
def decide(api) -> Callable[..., Any]:
    """Return a function that posts a decision."""

    def _decide(*tickets: str, role: str = "user", headers: Any = None, **body: Any) -> Any:
        content = {"round": 1, "tickets": list(tickets), "kind": "skip", **body}
        return api(f"{QUEUE}/decisions", role, "POST", content, **(headers or {}))

    return _decide


def token(name: str, role: str = "user") -> str:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    return get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=name, role=role))


def routes_of_the_app() -> Iterator[Any]:
    return (route for route in create_app().routes if hasattr(route, "dependant"))


def test_every_route_asks_for_a_permission():
    """A route that was added without one would answer everybody who is logged in."""
    for route in routes_of_the_app():
        if route.endpoint.__module__ == console.__name__:
            # The frames of pages hold nothing of a run; see below.
            continue
        calls = [dependency.call for dependency in route.dependant.dependencies]
        gates = [call for call in calls if "requires_access_" in call.__qualname__]
        # These two let everybody ask who is signed in, and answer with what that person may see.
        assert gates or {routes.readable_dags, may_read_connections} & set(calls), route.path
        if "POST" in route.methods and route.path.startswith("/api/v1") and "/stop" not in route.path:
            assert routes.FROM_HERE.dependency in calls, route.path


def test_a_page_is_the_same_for_all_queues(api, queue):
    frame = api(QUEUE.replace("/api/v1", ""), "viewer")
    other = api("/llmbatch/dags/other/runs/r/tasks/t/review?map_index={MAP_INDEX}", "viewer")
    assert frame.text == other.text
    assert "'unsafe" not in frame.headers["content-security-policy"]
    assert "<script>" not in frame.text


def test_anonymous_callers_get_nothing_from_any_route(api, queue):
    for route in routes_of_the_app():
        path = route.path.format(
            **{"dag_id": "billing", "run_id": WHO[1], "task_id": "review", "ticket": "0-0"},
            **{"connection_id": "c", "name": "review.js", "number": 1},
        )
        for method in route.methods:
            assert api(f"/llmbatch{path}", None, method, {}).status_code == 401, path


def test_a_reader_reads_and_does_not_decide(api, decide, queue):
    assert api(QUEUE, "viewer").json()["may_decide"] is False
    assert api(f"{QUEUE}/tickets", "viewer").json()["total"] == 4
    for path, body in (
        ("decisions", {"round": 1, "tickets": ["0-0"], "kind": "skip"}),
        ("check", {"output": {}}),
        ("wake", {}),
    ):
        assert api(f"{QUEUE}/{path}", "viewer", "POST", body).status_code == 403
    assert api(f"{API}/connections/llm", "viewer").status_code == 403
    assert not api(f"{QUEUE}/decisions", "viewer").json()["decisions"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://testserver", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_posts_come_from_this_site_and_are_json(decide, queue, headers, status):
    assert decide("0-0", headers=headers).status_code == status
    queue.refresh()
    assert bool(queue.round().decisions) == (status == 200)


@pytest.mark.parametrize(("headers", "status"), [({}, 403), ({"origin": "http://testserver"}, 200)])
def test_a_cookie_proves_who_and_not_whence(api, queue, headers, status):
    body = {"round": 1, "tickets": ["0-0"], "kind": "skip"}
    cookie = {"cookie": f"_token={token('ann')}", **headers}
    assert api(f"{QUEUE}/decisions", None, "POST", body, **cookie).status_code == status


def test_queues_are_listed_newest_first(api, open_queue):
    for number in range(3):
        open_queue(who=("billing", f"run-{number}", "review"), opened_at=NOW + number)
    answer = api(f"{API}/queues?limit=2", "viewer").json()
    assert answer["total"] == 3
    assert [queue["run_id"] for queue in answer["queues"]] == ["run-2", "run-1"]
    assert answer["queues"][0] | {"opened_at": ""} == {
        **{"dag_id": "billing", "run_id": "run-2", "task_id": "review", "map_index": -1, "state": "open"},
        **{"round": 1, "opened_at": "", "deadline": None, "tickets": 4, "decided": 0, "needed": 4},
    }
    assert api(f"{API}/queues?dag_id=other", "viewer").json()["total"] == 0


def test_a_queue_says_what_it_can_be_filtered_by(api, open_queue):
    rows = [failed(0), failed(1, Outcome.REFUSED, served_model="m-9", error=None)]
    open_queue(rows, deadline=NOW + 60, default="skip", quorum=0.5, max_rounds=3)
    shown = api(QUEUE, "user").json()
    assert shown["counts"]["outcome"] == {"invalid_output": 1, "refused": 1}
    assert shown["counts"]["model"] == {"m-1": 1, "m-9": 1}
    assert shown["choices"] == {"models": ["m-2"], "prompts": ["p@1", "p@2"]}
    assert (shown["needed"], shown["default"], shown["max_rounds"]) == (1, "skip", 3)
    assert (shown["opened_at"], shown["deadline"]) == ("2027-01-15T08:00:00Z", "2027-01-15T08:01:00Z")
    assert shown["schema"]["required"] == ["word"]
    assert shown["may_decide"] is True
    assert [each["state"] for each in shown["rounds"]] == ["open"]


def test_tickets_are_filtered_paged_and_ordered(api, open_queue, decide):
    open_queue([failed(n, Outcome.REFUSED if n % 2 else Outcome.INVALID_OUTPUT) for n in range(10)])
    decide("0-1", "0-3")
    page = api(f"{QUEUE}/tickets?outcome=refused&decision=open&limit=2&offset=1&order_by=-index", "viewer")
    assert page.json()["total"] == 3
    assert [ticket["id"] for ticket in page.json()["tickets"]] == ["0-7", "0-5"]
    both = api(f"{QUEUE}/tickets?decision=open&decision=skip&q=ITEM-00003", "viewer").json()
    (ticket,) = both["tickets"]
    assert ticket["decision"]["by"] == {"id": "somebody", "name": "somebody"}
    assert "raw_output" not in json.dumps(both)


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "order_by=secret", "colour=red", "round=0"])
def test_a_query_that_means_nothing_is_refused(api, queue, query):
    assert api(f"{QUEUE}/tickets?{query}", "viewer").status_code == 422


def test_a_ticket_shows_its_texts_its_neighbours_and_its_history(api, open_queue, decide):
    error = ItemError(kind="refusal", message="I would rather not.")
    open_queue([failed(0), failed(1, Outcome.REFUSED, error=error, raw_output=None), failed(2)])
    shown = api(f"{QUEUE}/tickets/0-1", "viewer").json()
    assert shown["texts"]["messages"] == [{"role": "user", "content": "text of 1"}]
    assert shown["texts"]["item"]["vars"] == {"text": "text of 1"}
    assert shown["texts"]["refusal"] == shown["texts"]["error"] == "I would rather not."
    assert (shown["previous"], shown["next"], shown["acceptable"]) == ("0-0", "0-2", False)
    decide("0-1", kind="edit", output={"word": "mine"}, why="because")
    shown = api(f"{QUEUE}/tickets/0-1", "viewer").json()
    assert shown["decision"]["why"] == "because"
    assert [each["output"] for each in shown["history"]] == [{"word": "mine"}]
    assert "does not satisfy" in api(f"{QUEUE}/tickets/0-0", "viewer").json()["why_not"]


def test_the_second_reviewer_is_told_of_the_first(api, queue, decide):
    assert decide("0-0", kind="retry", model="m-2").json()["decided"] == 1
    body = {"round": 1, "tickets": ["0-0"], "kind": "skip"}
    ben = {"authorization": f"Bearer {token('ben')}"}
    answer = api(f"{QUEUE}/decisions", None, "POST", body, **ben)
    assert answer.status_code == 409
    (conflict,) = answer.json()["conflicts"]
    assert conflict["decision"]["by"]["name"] == "somebody"
    mixed = api(f"{QUEUE}/decisions", None, "POST", {**body, "tickets": ["0-0", "0-1"]}, **ben)
    assert (mixed.status_code, mixed.json()["decided"], mixed.json()["conflicts_total"]) == (200, 1, 1)


def test_a_double_click_decides_once(queue, decide, api):
    first, second = decide("0-0"), decide("0-0")
    assert (first.json()["decided"], first.json()["already"]) == (1, 0)
    assert (second.status_code, second.json()["decided"], second.json()["already"]) == (200, 0, 1)
    assert api(f"{QUEUE}/decisions", "viewer").json()["total"] == 1


def test_one_changes_ones_mind_by_naming_what_one_saw(api, queue, decide):
    seen = decide("0-0") and api(f"{QUEUE}/tickets/0-0", "user").json()["decision"]["id"]
    assert decide("0-0", kind="retry").status_code == 409
    assert decide("0-0", kind="retry", replaces=seen).json()["decided"] == 1
    assert api(f"{QUEUE}/tickets/0-0", "user").json()["decision"]["kind"] == "retry"


@pytest.mark.parametrize("output", [{"word": 3}, {}, {"word": "a", "more": 1}, "text", None, [1]])
def test_an_edit_has_to_satisfy_the_schema(api, queue, decide, output):
    answer = decide("0-0", kind="edit", output=output)
    assert answer.status_code == 422
    assert "schema" in answer.json()["refused"][0]["why"] or "JSON" in answer.json()["refused"][0]["why"]
    checked = api(f"{QUEUE}/check", "user", "POST", {"output": output}).json()
    assert checked == {"valid": False, "why": answer.json()["refused"][0]["why"]}
    assert api(f"{QUEUE}/check", "user", "POST", {"output": {"word": "a"}}).json()["valid"] is True


@pytest.mark.parametrize(
    ("tickets", "body", "words"),
    [
        (["0-9"], {}, "no ticket"),
        (["0-0"], {"kind": "retry", "model": "m-7"}, "not offered"),
        (["0-0"], {"kind": "retry", "max_tokens": 0}, "greater than or equal to 1"),
        (["0-0"], {"kind": "burn"}, "'retry', 'edit', 'accept' or 'skip'"),
        (["0-0"], {"kind": "edit"}, "has an output"),
        (["0-0", "0-1"], {"kind": "edit", "output": {"word": "a"}}, "one ticket"),
        (["0-0"], {"filter": {}}, "either tickets or a filter"),
        (["0-0"], {"colour": "red"}, "Extra inputs"),
        (["0-0"], {"kind": "accept"}, "does not satisfy the schema"),
    ],
)
def test_what_cannot_be_decided_is_refused_with_words(queue, decide, tickets, body, words):
    answer = decide(*tickets, **body)
    assert answer.status_code == 422
    assert words in answer.text
    queue.refresh()
    assert not queue.round().decisions


def test_a_filter_decides_all_open_tickets_that_match(api, open_queue, decide):
    open_queue([failed(n, Outcome.REFUSED if n % 2 else Outcome.INVALID_OUTPUT) for n in range(10)])
    decide("0-1", kind="retry")
    answer = decide(tickets=None, filter={"outcome": ["refused"]})
    assert (answer.json()["decided"], answer.json()["conflicts_total"]) == (4, 0)
    assert api(QUEUE, "viewer").json()["counts"]["decision"] == {"open": 5, "skip": 4, "retry": 1}


def test_only_those_who_are_asked_decide(api, open_queue, decide):
    open_queue(assigned=(("ann", "ann"),))
    assert decide("0-0").status_code == 403
    assert api(QUEUE, "user").json()["may_decide"] is False
    body = {"round": 1, "tickets": ["0-0"], "kind": "skip"}
    ann = {"authorization": f"Bearer {token('ann')}"}
    assert api(f"{QUEUE}/decisions", None, "POST", body, **ann).status_code == 200


def test_the_export_opens_in_a_spreadsheet_without_running_anything(api, open_queue, decide):
    open_queue([failed(0, id="=cmd()"), failed(1)])
    decide("0-0", why="+1", kind="retry", model="m-2")
    answer = api(f"{QUEUE}/tickets.csv?order_by=item_id", "viewer")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["item_id"] for row in rows] == ["'=cmd()", "item-00001"]
    assert (rows[0]["decision.kind"], rows[0]["decision.by"], rows[0]["decision.why"]) == (
        *("retry", "somebody"),
        "'+1",
    )
    assert rows[1]["decision.kind"] == ""


def test_decisions_are_in_the_audit_log_without_their_texts(queue, decide, airflow_db):
    decide("0-0", kind="edit", output={"word": "confidential"})
    with closing(sqlite3.connect(airflow_db)) as database:
        (entry,) = database.execute(
            "SELECT owner, dag_id, task_id, run_id, extra FROM log WHERE event = 'llmbatch_decide' "
            "ORDER BY id DESC LIMIT 1"
        )
    assert entry[:4] == ("somebody", WHO[0], WHO[2], WHO[1])
    assert json.loads(entry[4]) == {"kind": "edit", "decided": 1, "method": "POST"}


def test_a_complete_queue_wakes_its_task_and_a_decision_survives_a_task_that_is_gone(api, open_queue, decide):
    """There is no such task in this database: what was decided stays, and is told."""
    open_queue([failed(0)])
    answer = decide("0-0")
    assert (answer.status_code, answer.json()["resumed"]) == (200, False)
    woken = api(f"{QUEUE}/wake", "user", "POST", {}).json()
    assert woken["resumed"] is False
    assert "not waiting" in woken["why"]


def test_an_incomplete_queue_wakes_nobody(api, queue):
    assert api(f"{QUEUE}/wake", "user", "POST", {}).json() == {
        "resumed": False,
        "why": "Not enough is decided.",
    }


@pytest.mark.parametrize("path", ["", "/tickets", "/tickets/0-0", "/decisions", "/tickets.csv"])
def test_what_is_not_there_is_not_found(api, path):
    answer = api(QUEUE + path, "admin")
    assert answer.status_code == 404
    assert answer.json() == {"detail": "This task has opened no queue."}


def test_a_storage_that_cannot_be_read_is_told_as_such(api, queue):
    from pathlib import Path

    (Path(queue.storage.uri) / "log-01-000001.json").write_text("{")
    answer = api(QUEUE, "viewer")
    assert answer.status_code == 503
    assert "cannot be read" in answer.json()["detail"]


def test_a_connection_is_shown_without_its_key(api, monkeypatch):
    connection = {
        **{"conn_type": "llmbatch", "host": "http://llm/v1", "password": "sk-canary-0123456789"},
        "extra": {"model": "m-1", "requests_per_minute": 50, "account": "team"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_LLM_SHOWN", json.dumps(connection))
    answer = api(f"{API}/connections/llm_shown", "op")
    assert answer.json()["base_url"] == "http://llm/v1"
    assert answer.json()["credentials"][0]["account"] == "team"
    assert answer.json()["limits"][0]["requests_per_minute"] == 50
    assert "canary" not in answer.text
    assert api(f"{API}/connections/nowhere", "op").status_code == 404
    assert answer.headers["cache-control"] == "no-store"


def test_ten_thousand_tickets_answer_fast(api, open_queue, decide):
    """Measured with everything that is between a client and the queue, but for the network."""
    open_queue([failed(n, Outcome.REFUSED if n % 2 else Outcome.INVALID_OUTPUT) for n in range(10_000)])

    def took(ask: Callable[[], Any]) -> float:
        began = time.perf_counter()
        assert ask().status_code == 200
        return time.perf_counter() - began

    api(QUEUE, "viewer")
    for query in ("", "?limit=500&order_by=-tokens", "?outcome=refused&decision=open&q=item-00&offset=400"):
        best = min(took(lambda query=query: api(f"{QUEUE}/tickets{query}", "viewer")) for _ in range(3))
        assert best <= 0.3
    assert min(took(lambda: api(QUEUE, "viewer")) for _ in range(3)) <= 0.3
    assert took(lambda: decide(tickets=None, filter={})) <= 5.0
    assert api(QUEUE, "viewer").json()["decided"] == 10_000
