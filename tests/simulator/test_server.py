"""The simulator over a real socket: limits, headers, keys, control."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import pytest

from airflow_provider_llmbatch.simulator.arrivals import max_in_window, read_arrivals
from airflow_provider_llmbatch.simulator.server import Simulator, serve
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings, read_keys

Start = Callable[..., Any]


def test_a_completion_has_the_shape_of_openais(start: Start) -> None:
    reply = start().ask("hello", max_tokens=500)
    body = reply.json()
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("application/json")
    assert re.fullmatch(r"req_[0-9a-f]{32}", reply.headers["x-request-id"])
    assert (body["object"], body["model"], body["created"]) == ("chat.completion", "m-1", 1_800_000_000)
    choice = body["choices"][0]
    assert (choice["finish_reason"], choice["message"]["role"]) == ("stop", "assistant")
    assert (
        body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]
    )


def test_the_same_request_is_answered_alike_by_every_simulator(start: Start) -> None:
    first, second = start().ask("hello").json(), start(rpm=5).ask("hello").json()
    assert first == second


def test_a_schema_is_answered_with_a_valid_document(start: Start) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    content = start().ask(response_format=wanted).json()["choices"][0]["message"]["content"]
    jsonschema.validate(json.loads(content), schema)


@pytest.mark.parametrize(
    "limits", [{"rpm": 7, "tpm": 10**6}, {"rpm": 1000, "tpm": 260}], ids=["requests", "tokens"]
)
@pytest.mark.parametrize("counts", ["reserved", "used"])
def test_concurrent_calls_fill_the_limit_exactly(start: Start, limits: dict[str, int], counts: str) -> None:
    client = start(**limits, counts=counts)
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda number: client.ask(f"{number:040}", max_tokens=20), range(40)))
    arrivals = read_arrivals(client.arrivals())
    admitted = [arrival for arrival in arrivals if arrival.admitted]
    assert len(admitted) == sum(reply.status_code == 200 for reply in replies)
    assert sum(reply.status_code == 429 for reply in replies) == 40 - len(admitted)
    used = max_in_window([(arrival.time, arrival.tokens) for arrival in admitted], 60.0)
    full_by_tokens = used <= limits["tpm"] < used + max(arrival.tokens for arrival in arrivals)
    assert len(admitted) == limits["rpm"] or full_by_tokens


def test_reserved_calls_take_prompt_and_cap_and_used_ones_their_usage(start: Start) -> None:
    for counts, expected in (
        ("reserved", lambda usage: usage["prompt_tokens"] + 300),
        ("used", lambda usage: usage["total_tokens"]),
    ):
        client = start(counts=counts)
        usage = client.ask(max_tokens=300).json()["usage"]
        assert client.arrivals()[0]["tokens"] == expected(usage)
        assert client.arrivals()[0]["prompt_tokens"] == usage["prompt_tokens"]


@pytest.mark.parametrize("limits", [{"rpm": 3}, {"tpm": 100}], ids=["requests", "tokens"])
@pytest.mark.parametrize("failed_counts", [True, False])
def test_a_retry_after_the_told_wait_succeeds_and_one_before_does_not(
    start: Start, limits: dict[str, int], failed_counts: bool
) -> None:
    client = start(**limits, failed_counts=failed_counts)
    texts = (f"{number:0100}" for number in range(100))
    while (reply := client.ask(next(texts))).status_code == 200:
        client.clock.move(7.77)
    if not failed_counts:
        client.clock.move(int(reply.headers["retry-after-ms"]) / 1000 - 0.01)
        reply = client.ask("too early")
        assert reply.status_code == 429
    wait_s = float(reply.headers["retry-after"])
    assert wait_s == int(reply.headers["retry-after-ms"]) / 1000
    client.clock.move(wait_s)
    assert client.ask("in time").status_code == 200


def test_a_429_has_openais_body(start: Start) -> None:
    client = start(rpm=1)
    client.ask()
    client.clock.move(58.75)
    reply = client.ask()
    error = reply.json()["error"]
    assert reply.status_code == 429
    assert (
        "on requests per min (RPM): Limit 1, Used 1, Requested 1. Please try again in 1.25s."
        in error["message"]
    )
    assert (error["type"], error["param"], error["code"]) == ("requests", None, "rate_limit_exceeded")


def test_a_request_above_the_whole_limit_is_told_so(start: Start) -> None:
    reply = start(tpm=500).ask(max_tokens=600)
    assert reply.status_code == 429
    assert "Request too large" in reply.json()["error"]["message"]
    assert "retry-after" not in reply.headers


def test_limit_headers_are_on_every_reply_of_an_account(start: Start) -> None:
    client = start({"match": {"contains": "fail"}, "reply": {"status": 500}}, rpm=2, tpm=90_000)
    for text, remaining in (("x", "1"), ("fail", "0"), ("y", "0")):
        headers = client.ask(text).headers
        assert headers["x-ratelimit-limit-requests"] == "2"
        assert headers["x-ratelimit-remaining-requests"] == remaining
        assert headers["x-ratelimit-reset-requests"] == "1m0s"
        assert headers["x-ratelimit-limit-tokens"] == "90000"
        assert int(headers["x-ratelimit-remaining-tokens"]) < 90_000
        assert re.fullmatch(r"(\d+m)?[\d.]+m?s", headers["x-ratelimit-reset-tokens"])


def test_a_service_that_does_not_tell_its_limits_has_none_of_these_headers_and_still_refuses(
    start: Start,
) -> None:
    client = start(rpm=1, tell_limits=False)
    first, second = client.ask(), client.ask()
    assert (first.status_code, second.status_code) == (200, 429)
    assert [name for reply in (first, second) for name in reply.headers if "ratelimit" in name] == []
    assert second.headers["retry-after"], "how long to wait is said all the same"


def test_known_keys_are_let_in_and_share_the_limits_of_their_account(start: Start) -> None:
    client = start(rpm=1, keys=read_keys("a@acme=sk-a,b@acme=sk-b,c=sk-c"))
    assert [client.ask(key=key).status_code for key in ("sk-a", "sk-b", "sk-c")] == [200, 429, 200]
    assert [(row["credential"], row["account"]) for row in client.arrivals()] == [
        ("a", "acme"),
        ("b", "acme"),
        ("c", "c"),
    ]


def test_an_unknown_key_is_refused_with_most_of_it_hidden(start: Start) -> None:
    client = start(keys=read_keys("a=sk-a"))
    key = "sk-proj-0123456789abcdefghijklmnop"
    reply = client.ask(key=key)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (401, "invalid_api_key")
    assert "sk-proj-" in error["message"]
    assert key not in reply.text
    assert client.arrivals()[0] | {"status": 401, "admitted": False, "credential": ""} == client.arrivals()[0]
    assert client.http.get(f"{client.url}/models").status_code == 401


def test_any_key_is_let_in_when_none_is_set(start: Start) -> None:
    client = start(rpm=1)
    assert [client.ask(key=key).status_code for key in ("x", "y", "x")] == [200, 200, 429]
    assert "sk-canary" not in json.dumps([client.ask(key="sk-canary").text, client.arrivals()])


def test_a_deployment_path_with_an_api_key_header_works_as_at_azure(start: Start) -> None:
    client = start(keys=read_keys("a=sk-a"))
    reply = client.http.post(
        client.url.replace("/v1", "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"),
        json={"messages": [{"role": "user", "content": "hello"}]},
        headers={"api-key": "sk-a"},
    )
    assert (reply.status_code, reply.json()["model"]) == (200, "my-gpt")


def test_models_have_limits_of_their_own_when_told_so(start: Start) -> None:
    for per_model, expected in ((True, [200, 200, 429]), (False, [200, 429, 429])):
        client = start(rpm=1, per_model=per_model)
        assert [client.ask(model=model).status_code for model in ("m", "n", "m")] == expected


def test_only_models_that_exist_are_answered(start: Start) -> None:
    client = start(models=("m-1", "m-2"))
    listed = client.http.get(f"{client.url}/models").json()["data"]
    assert [model["id"] for model in listed] == ["m-1", "m-2"]
    assert client.ask(model="m-2").status_code == 200
    reply = client.ask(model="gpt-9")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")


def test_a_request_beyond_the_models_window_is_refused_as_too_long(start: Start) -> None:
    client = start(model_window=50)
    assert client.ask(max_tokens=20).status_code == 200
    error = client.ask(max_tokens=49).json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert "maximum context length is 50 tokens" in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("POST", "/v1/responses", 501, "POST /v1/responses is not built"),
        ("POST", "/v1/embeddings", 501, "chat completions only"),
        ("GET", "/v1/files/f-1/content", 501, "not built"),
        ("GET", "/v1/chat/completions", 405, "Not allowed to GET"),
        ("POST", "/v1/nothing", 404, "Invalid URL (POST /v1/nothing)"),
        ("GET", "/", 404, "Invalid URL"),
    ],
)
def test_other_paths_are_refused_in_openais_shape(
    start: Start, method: str, path: str, status: int, words: str
) -> None:
    client = start()
    reply = client.http.request(method, client.url.replace("/v1", path))
    assert reply.status_code == status
    assert words in reply.json()["error"]["message"]


def test_limits_change_while_it_runs(start: Start) -> None:
    client = start(rpm=1)
    assert [client.ask().status_code, client.ask().status_code] == [200, 429]
    assert client.control("limits", {"rpm": 2}).json() == {"rpm": 2, "tpm": 90_000}
    assert [client.ask().status_code, client.ask().status_code] == [200, 429]
    assert client.control("limits", {"rpm": 0}).status_code == 400
    assert client.control("limits", {"rps": 1}).status_code == 400


def test_the_scenario_changes_while_it_runs(start: Start) -> None:
    client = start()
    told = client.control("scenario", {"rules": [{"match": {"until_s": 10}, "reply": {"status": 503}}]})
    assert (told.status_code, told.json()) == (200, {"rules": 1})
    assert client.ask().status_code == 503
    client.clock.move(10.0)
    assert client.ask().status_code == 200
    wrong = client.control("scenario", {"rules": [{"reply": {"status": 1}}]})
    assert wrong.status_code == 400
    assert "rules.0.reply.status" in wrong.json()["error"]["message"]
    assert client.control("scenario", {}).json() == {"rules": 0}


def test_arrivals_tell_what_came_and_what_was_answered(start: Start) -> None:
    client = start({"match": {"contains": "fail"}, "reply": {"status": 503}}, rpm=2)
    for text in ("x", "fail", "x"):
        client.ask(text)
        client.clock.move(1.0)
    rows = client.arrivals()
    assert [(row["n"], row["status"], row["admitted"], row["rule"]) for row in rows] == [
        (1, 200, True, None),
        (2, 503, True, 0),
        (3, 429, False, None),
    ]
    assert [row["time"] - 1_800_000_000 for row in rows] == [0.0, 1.0, 2.0]
    assert rows[0]["sha"] == rows[2]["sha"] != rows[1]["sha"]
    assert all(row["in_flight"] == 1 and row["duration"] >= 0 for row in rows)
    assert client.control("arrivals?since=2").json() == rows[2:]
    assert client.control("arrivals?since=x").status_code == 400


def test_stats_judge_the_server_and_its_clients(start: Start) -> None:
    client = start(rpm=2)
    for text in ("x", "x", "y"):
        client.ask(text)
    stats = client.control("stats").json()
    assert (stats["arrivals"], stats["admitted"], stats["doubles"], stats["in_flight"]) == (3, 2, 1, 0)
    assert stats["by_status"] == {"200": 2, "429": 1}
    assert stats["windows_admitted"]["max_requests"] == 2
    assert stats["windows_admitted"]["requests_over"] == 0
    assert stats["windows_arrived"]["max_requests"] == 3
    assert stats["windows_arrived"]["requests_over"] == 1
    assert stats["max_in_flight"] == 1


def test_a_reset_forgets_arrivals_limits_and_counters(start: Start) -> None:
    client = start({"match": {"first": 1}, "reply": {"status": 503}}, rpm=1)
    assert [client.ask().status_code, client.ask().status_code] == [503, 429]
    client.control("reset", {})
    assert client.arrivals() == []
    assert client.ask().status_code == 503


async def test_calls_in_flight_are_counted_and_one_given_up_ends() -> None:
    settings = SimulatorSettings(latency_s=0.5, jitter=0.0)
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    async with serve(settings) as url, httpx.AsyncClient() as http:

        async def arrivals() -> list[dict[str, Any]]:
            return list((await http.get(url.replace("/v1", "/_sim/arrivals"))).json())

        calls = [asyncio.create_task(http.post(f"{url}/chat/completions", json=body)) for _ in range(5)]
        while len(await arrivals()) < 5:
            pass
        calls[0].cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        rows = await arrivals()
    assert sorted(row["in_flight"] for row in rows) == [1, 2, 3, 4, 5]
    assert sorted(row["status"] for row in rows) == [200, 200, 200, 200, 499]
    assert all(row["duration"] >= 0.5 for row in rows if row["status"] == 200)


def test_a_taken_port_is_an_error_of_start() -> None:
    first = Simulator(SimulatorSettings())
    port = int(first.start().split(":")[2].split("/")[0])
    second = Simulator(SimulatorSettings(port=port))
    with pytest.raises(OSError, match=str(port)):
        second.start()
    second.stop()
    first.stop()
    first.stop()
