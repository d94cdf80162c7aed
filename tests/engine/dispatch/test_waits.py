"""One parser for everything that a service says about waiting."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.dispatch import waits

#: 2026-11-29 12:00:00 UTC, a Sunday.
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sun, 29 Nov 2026 12:01:30 GMT", 90.0),
        ("Sunday, 29-Nov-26 12:01:30 GMT", 90.0),
        ("Sun Nov 29 12:01:30 2026", 90.0),
        ("Sun, 29 Nov 2026 11:59:00 GMT", 0.0),
        ("Sunday, 29-Nov-26 11:59:00 GMT", 0.0),
        ("Sun Nov 29 11:59:00 2026", 0.0),
    ],
)
def test_retry_after_is_read_in_all_three_date_shapes(text: str, expected: float):
    """P15."""
    assert waits.retry_after({"retry-after": text}, NOW) == expected


def test_a_date_is_never_rounded_down():
    """P15."""
    wait = waits.retry_after({"retry-after": "Sun, 29 Nov 2026 12:01:30 GMT"}, NOW + 0.25)
    assert wait == pytest.approx(89.75)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6m0s", 360.0),
        ("1h2m3.5s", 3723.5),
        ("20ms", 0.02),
        ("500ms", 0.5),
        ("0s", 0.0),
        ("1s", 1.0),
        ("59.1", 59.1),
        ("2026-11-29T12:00:00Z", 0.0),
        ("2026-11-29T12:00:07Z", 7.0),
        ("2026-11-29T12:00:07.5+00:00", 7.5),
        ("2026-11-29T12:00:07", 7.0),
        ("1d", 86400.0),
        ("1m30s", 90.0),
        ("7m12.5s", 432.5),
        ("5m", 300.0),
        ("3m20ms", 180.02),
        (" 12 ", 12.0),
        (".5", 0.5),
        (str(NOW + 30), 30.0),
        (str(int((NOW + 30) * 1000)), 30.0),
        ("1.5m", 90.0),
        ("0.5h", 1800.0),
        ("9999-12-31T23:59:59Z", waits.LONGEST_WAIT_S),
        ("0001-01-01T00:00:00Z", 0.0),
        ("9" * 60, waits.LONGEST_WAIT_S),
        ("3000d", waits.LONGEST_WAIT_S),
        ("0.5d", 43200.0),
        ("0" * 63 + "7", 7.0),
        # up to here a wait, from here on a time: of 2001, in seconds and then in milliseconds
        ("1000000000", waits.LONGEST_WAIT_S),
        ("1000000001", 0.0),
        ("1000000000000", waits.LONGEST_WAIT_S),
        ("1000000000001", 0.0),
    ],
)
def test_reset_headers_become_seconds(text: str, expected: float):
    """P17."""
    headers = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": text}
    assert waits.limit_reset(headers, NOW) == pytest.approx(expected)


def test_no_wait_is_longer_than_a_day():
    assert waits.LONGEST_WAIT_S == 24 * 60 * 60


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-29T12:00:07", 7.0),
        ("2026-11-29T14:00:07+02:00", 7.0),
        ("Sun Nov 29 12:01:30 2026", 90.0),
        ("Sun, 29 Nov 2026 14:01:30 +0200", 90.0),
    ],
)
def test_a_time_is_in_its_own_zone_or_in_utc_wherever_the_machine_stands(
    text: str, expected: float, monkeypatch: pytest.MonkeyPatch
):
    """P15, P17."""
    monkeypatch.setenv("TZ", "Pacific/Apia")
    time.tzset()
    try:
        assert waits.seconds(text, NOW) == expected
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "soon",
            "-1",
            "-6m0s",
            "1e3",
            "1e400",
            "nan",
            "inf",
            "-inf",
            "6m0s later",
            "١٢",
            "s",
            "0x10",
            "1:30",
        ),
        *(
            "1,5",
            "1_000",
            "6 m",
            "Sun, 99 Nov 2026 12:01:30 GMT",
            "Sun, 29 Nov 99999999999 12:01:30 GMT",
            "9" * 65,
        ),
    ],
)
def test_unknown_shapes_say_nothing(text: str):
    """P17."""
    assert waits.seconds(text, NOW) is None


def test_milliseconds_come_before_seconds():
    headers = {"retry-after-ms": "1500", "retry-after": "2"}
    assert waits.retry_after(headers, NOW) == 1.5
    assert waits.retry_after({"retry-after-ms": "soon", "retry-after": "2"}, NOW) == 2.0
    assert waits.retry_after({"retry-after-ms": "0" * 18 + "7", "retry-after": "2"}, NOW) == 0.007
    assert waits.retry_after({"retry-after-ms": "0" * 19 + "7", "retry-after": "2"}, NOW) == 2.0
    assert waits.retry_after({}, NOW) is None


def test_only_exhausted_limits_count_and_the_longest_decides():
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6s",
    }
    assert waits.limit_reset(headers, NOW) == 6.0
    assert waits.limit_reset({**headers, "x-ratelimit-remaining-tokens": "12"}, NOW) == 1.0
    assert waits.limit_reset({"x-ratelimit-reset-tokens": "6s"}, NOW) is None


@pytest.mark.parametrize("text", ["-1", "nan", "1e400", "soon", ""])
def test_an_unknown_shape_leaves_the_word_to_the_next_header(text: str):
    """P17."""
    spent = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "3s"}
    assert waits.told({"retry-after-ms": text, "retry-after": "2", **spent}, "", NOW) == 2.0
    assert waits.told({"retry-after": text, **spent}, "", NOW) == 3.0
    assert waits.told({"retry-after": text}, "Please try again in 4s.", NOW) == 4.0
    assert waits.told({"retry-after": text}, "Please try again.", NOW) is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Rate limit reached. Please try again in 6m0s. Visit the console.", 360.0),
        ("Please try again in 1.242s.", 1.242),
        ("Please try again in 20ms.", 0.02),
        ("Please retry after 86400 seconds. Please go here", 86400.0),
        ("Please retry after 1 minute", 60.0),
        ("Try again in 60 seconds. Passed model=m.", 60.0),
        ("try again in 2 hours", 7200.0),
        ("try again in 500 milliseconds", 0.5),
        ("Please try again in 5 stages", None),
        ("Please try again in -5s", None),
        ("try again in a minute", None),
        ("retry after the next deployment", None),
        ("", None),
    ],
)
def test_a_wait_in_words_is_read_when_no_header_says_it(message: str, expected: float | None):
    """P24."""
    assert waits.told({}, message, NOW) == expected
    assert waits.told({"retry-after": "7"}, message, NOW) == 7.0


HOSTILE = st.one_of(
    st.text(max_size=80),
    st.text("0123456789.:-+eEdhms TZ/,nainf_", max_size=30),
    st.floats().map(str),
    st.integers(-(10**60), 10**60).map(str),
    st.from_regex(r"(\d{1,30}[dhms]){1,4}", fullmatch=True),
    st.builds(
        "{}, {} {} {} {}:{}:{} GMT".format, *[st.sampled_from(["Sun", "Nov", "29", "-1", "99999", "26"])] * 7
    ),
)


@given(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
def test_any_headers_and_words_are_a_wait_from_zero_to_a_day_or_nothing(after, after_ms, reset, message):
    headers = {
        "retry-after": after,
        "retry-after-ms": after_ms,
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": reset,
    }
    for wait in (waits.told(headers, f"try again in {message}", NOW), waits.in_words(message, NOW)):
        assert wait is None or 0.0 <= wait <= waits.LONGEST_WAIT_S


@given(st.floats(0, 80_000), st.sampled_from(["s", " seconds", "ms", " milliseconds", "m", " minutes"]))
def test_every_wait_in_words_reads_as_in_a_header(number: float, unit: str):
    short = unit.strip().replace("illisecond", "").replace("seconds", "s").replace("minutes", "m")
    assert waits.in_words(f"Please retry after {number:.3f}{unit}. Thanks.", NOW) == waits.seconds(
        f"{number:.3f}{short}", NOW
    )


@given(st.text(max_size=80))
def test_any_text_is_a_wait_from_zero_to_a_day_or_nothing(text: str):
    wait = waits.seconds(text, NOW)
    assert wait is None or 0.0 <= wait <= waits.LONGEST_WAIT_S


@given(st.floats(0, 80_000))
def test_every_number_of_seconds_reads_as_itself(seconds: float):
    assert waits.seconds(f"{seconds:.3f}", NOW) == pytest.approx(seconds, abs=0.001)
    assert waits.seconds(f"{seconds:.3f}s", NOW) == pytest.approx(seconds, abs=0.001)


@given(st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_every_duration_reads_as_its_sum(hours: int, minutes: int, seconds: int):
    assert waits.seconds(f"{hours}h{minutes}m{seconds}s", NOW) == hours * 3600 + minutes * 60 + seconds


@given(st.integers(0, 80_000))
def test_every_date_ahead_is_the_time_until_then(ahead: int):
    moment = datetime.fromtimestamp(NOW + ahead, UTC)
    assert waits.seconds(format_datetime(moment, usegmt=True), NOW) == ahead
    assert waits.seconds(moment.strftime("%A, %d-%b-%y %H:%M:%S GMT"), NOW) == ahead
    assert waits.seconds(moment.strftime("%a %b %d %H:%M:%S %Y"), NOW) == ahead
    assert waits.seconds(moment.isoformat(), NOW) == ahead
