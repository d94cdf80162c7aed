"""Stopping a run over HTTP, behind Airflow's own permissions."""

from __future__ import annotations

import pytest

from airflow_provider_llmbatch.operators.stopping import let_go_on, stop_of

RUN = ("billing", "manual__2026-11-29T12:00:00+00:00")
PATH = f"/llmbatch/api/v1/dags/{RUN[0]}/runs/{RUN[1]}/stop"


@pytest.fixture(autouse=True)
def going_on(api):
    yield
    let_go_on(*RUN)


def test_who_may_change_a_run_stops_it_and_lets_it_go_on(api):
    assert api(PATH, "user").json() == {"stop": None}
    answer = api(PATH, "user", "POST", {"why": "wrong prompt"})
    assert answer.status_code == 200
    stop = answer.json()["stop"]
    assert (stop["by"], stop["why"]) == ("somebody", "wrong prompt")
    assert (stop_of(*RUN).by, stop_of(*RUN).why) == ("somebody", "wrong prompt")
    assert api(PATH, "viewer").json() == {"stop": stop}
    assert api(PATH, "user", "DELETE").json() == {"stop": None}
    assert stop_of(*RUN) is None


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize(("role", "status"), [(None, 401), ("viewer", 403)])
def test_who_may_not_change_a_run_cannot_stop_it(api, method, role, status):
    assert api(PATH, role, method, {}).status_code == status
    assert stop_of(*RUN) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site", "origin": "http://testserver"}, 403),
        ({"origin": "http://elsewhere"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://testserver"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_another_site_cannot_have_a_users_browser_stop_a_run(api, headers, status):
    assert api(PATH, "admin", "POST", {}, **headers).status_code == status
    assert (stop_of(*RUN) is not None) == (status == 200)


def test_a_cookie_alone_stops_nothing(api):
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="somebody", role="admin"))
    cookie = {"cookie": f"_token={token}"}
    assert api(PATH, None, "GET", **cookie).status_code == 200
    assert api(PATH, None, "POST", {}, **cookie).status_code == 403
    assert api(PATH, None, "POST", {}, **cookie, **{"sec-fetch-site": "same-origin"}).status_code == 200


@pytest.mark.parametrize("content", [None, {"why": "a" * 201}, {"why": 5}])
def test_a_body_that_is_no_reason_is_refused(api, content):
    assert api(PATH, "admin", "POST", content).status_code == 422


def test_a_state_that_cannot_be_reached_is_said_in_words(api, monkeypatch):
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", "redis://127.0.0.1:1/0")
    for method, content in (("GET", None), ("POST", {}), ("DELETE", None)):
        answer = api(PATH, "admin", method, content)
        assert answer.status_code == 503
        assert "The state of batches cannot be reached: Redis" in answer.json()["detail"]
    # What cleans up after the test needs the state that is there.
    monkeypatch.undo()
