"""What limit headers say, and that it reaches the shared limits."""

from __future__ import annotations

import time

import pytest

from airflow_provider_llmbatch.engine.dispatch.limit.headers import aged, read
from airflow_provider_llmbatch.engine.dispatch.limit.limiter import Limiter
from airflow_provider_llmbatch.engine.state.protocols import Need, Told
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from tests.contracts.states import requests, scope


def test_limits_and_what_is_left_are_read_by_unit():
    headers = {
        "x-ratelimit-limit-requests": "600",
        "x-ratelimit-remaining-requests": " 599 ",
        "x-ratelimit-limit-tokens": "90000",
        "x-ratelimit-remaining-tokens": "0",
    }
    assert read(headers) == (
        Told(unit="requests", limit=600, remaining=599),
        Told(unit="tokens", limit=90_000, remaining=0),
    )


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"retry-after": "3"},
        {"x-ratelimit-limit-requests": "", "x-ratelimit-limit-tokens": "unlimited"},
        {"x-ratelimit-limit-requests": "0"},
        {"x-ratelimit-limit-requests": "-1", "x-ratelimit-remaining-requests": "-1"},
        {"x-ratelimit-limit-requests": "1e9", "x-ratelimit-limit-tokens": "9" * 40},
    ],
)
def test_what_is_no_amount_says_nothing(headers: dict[str, str]):
    assert read(headers) == ()


def test_a_service_may_say_only_what_is_left():
    assert read({"x-ratelimit-remaining-tokens": "12"}) == (Told(unit="tokens", remaining=12),)


def test_a_service_may_say_only_how_much_it_admits():
    assert read({"x-ratelimit-limit-requests": "600"}) == (Told(unit="requests", limit=600),)


def test_a_limit_of_nothing_leaves_what_is_left():
    headers = {"x-ratelimit-limit-tokens": "0", "x-ratelimit-remaining-tokens": "5"}
    assert read(headers) == (Told(unit="tokens", remaining=5),)


def test_what_was_left_some_time_ago_may_be_more_by_now():
    told = Told(unit="requests", limit=60, remaining=10)
    assert aged(told, 0.0, 600, 60.0).remaining == 10
    assert aged(told, 15.0, 600, 60.0).remaining == 25
    assert aged(told, 90.0, 600, 60.0).remaining == 60
    assert aged(Told(unit="requests", remaining=10), 6.0, 600, 60.0).remaining == 70
    silent = Told(unit="requests", limit=60)
    assert aged(silent, 15.0, 600, 60.0) == silent


async def test_what_was_heard_goes_with_the_next_take_and_the_newest_counts():
    state, limited = SqliteState(":memory:"), scope(requests(50, window_s=60.0))
    async with Limiter(state, limited, now=time.monotonic) as queue:
        now = time.monotonic()
        queue.hear([Told(unit="requests", limit=40, remaining=20)], now)
        queue.hear([Told(unit="requests", limit=50, remaining=45)], now - 1.0)
        await queue.acquire(Need(tokens=1))
        (level,) = await state.levels(limited)
    await state.close()
    # Less than a second of the rate has come free meanwhile.
    assert 20 <= level.used <= 21
