"""Rules choose where a request goes first, and where it goes next."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_llmbatch.engine.dispatch.route import read_routes
from airflow_provider_llmbatch.errors import ConfigurationError

NAMES = ("small", "small_b", "small_c", "large", "large_b")
TIERS: list[dict[str, Any]] = [
    {"if": "prompt_tokens < 512", "use": "small"},
    {"if": "true", "use": "large"},
    {"from": "small", "if": "latency_ms > 800.0", "use": "small_b"},
    {"from": "small_b", "if": "latency_ms > 800.0", "use": "small_c"},
    {"from": "small", "if": "status == 429 || status >= 500", "use": "small_b"},
    {"from": "small_b", "if": "status == 429 || status >= 500", "use": "small_c"},
    {"if": "outcome == 'truncated' || outcome == 'too_long'", "use": "large"},
]


def request(prompt_tokens: int = 10) -> dict[str, Any]:
    return {"prompt_tokens": prompt_tokens, "output_tokens": 5, "group": "", "variant": ""}


def seen(status: int = 0, outcome: str = "") -> dict[str, Any]:
    return {"status": status, "kind": "http", "code": "", "outcome": outcome, "attempts": 1}


def test_the_first_rule_that_holds_for_the_request_chooses():
    routes = read_routes(NAMES, TIERS)
    assert routes.first(request(511)) == "small"
    assert routes.first(request(512)) == "large"


def test_without_rules_everything_goes_to_the_first_endpoint():
    assert read_routes(["only"], []).first(request()) == "only"


def test_a_failure_leads_on_and_never_back_to_where_the_request_has_been():
    routes = read_routes(NAMES, TIERS)
    assert routes.after("small", seen(503), request(), {"small"}) == "small_b"
    assert routes.after("small_b", seen(429), request(), {"small", "small_b"}) == "small_c"
    assert routes.after("small_c", seen(503), request(), {"small", "small_b", "small_c"}) is None


def test_a_failure_that_no_rule_speaks_of_leads_nowhere():
    assert read_routes(NAMES, TIERS).after("small", seen(404), request(), {"small"}) is None


def test_a_truncated_reply_takes_the_larger_model_from_anywhere():
    routes = read_routes(NAMES, TIERS)
    assert routes.after("small_c", seen(200, "truncated"), request(), {"small_c"}) == "large"


@pytest.mark.parametrize(
    ("p95_ms", "goes_to"),
    [
        ({}, "small"),
        ({"small": 800.0}, "small"),
        ({"small": 801.0}, "small_b"),
        ({"small": 900.0, "small_b": 900.0}, "small_c"),
    ],
)
def test_a_slow_endpoint_is_passed_over_for_the_next_requests(p95_ms: dict[str, float], goes_to: str):
    assert read_routes(NAMES, TIERS).diverted("small", request(), p95_ms) == goes_to


def test_two_slow_endpoints_that_point_at_each_other_end():
    rules = [
        {"from": "a", "if": "latency_ms > 1.0", "use": "b"},
        {"from": "b", "if": "latency_ms > 1.0", "use": "a"},
    ]
    assert read_routes(["a", "b"], rules).diverted("a", request(), {"a": 5.0, "b": 5.0}) == "b"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"if": "prompt_tokens <", "use": "small"}, "no CEL"),
        ({"if": "prompt_token < 5", "use": "small"}, "'prompt_token', which is not known"),
        ({"if": "prompt_tokens < 'x'", "use": "small"}, "cannot be evaluated"),
        ({"if": "prompt_tokens", "use": "small"}, "not true or false"),
        ({"if": "true", "use": "smal"}, "'smal', which is no endpoint"),
        ({"if": "status == 503", "use": "small", "from": "x"}, "'from' 'x', which is no endpoint"),
        ({"if": "status == 503 && latency_ms > 1.0", "use": "small"}, "write two rules"),
        ({"if": "prompt_tokens < 5", "use": "small", "from": "large"}, "leave 'from' out"),
        ({"when": "true", "use": "small"}, "it has the keys"),
        ("true", "it has the keys"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_with_its_number(rule: Any, words: str):
    with pytest.raises(ConfigurationError, match="Rule 2 of the routes") as refused:
        read_routes(NAMES, [TIERS[0], rule])
    assert words in str(refused.value)
