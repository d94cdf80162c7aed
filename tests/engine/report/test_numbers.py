from __future__ import annotations

from decimal import Decimal

import pytest

from airflow_provider_llmbatch.engine.report import numbers


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0"), (999, "999"), (1000, "1,000"), (12_345_678, "12,345,678")]
)
def test_counts_have_thousands_marks(number: int, shown: str) -> None:
    assert numbers.count(number) == shown


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (0, 10, "0%"),
        (10, 10, "100%"),
        (1, 3, "33.3%"),
        (96, 100, "96.0%"),
        (1, 100_000, "<0.1%"),
        (99_999, 100_000, ">99.9%"),
        (999, 1000, "99.9%"),
        (1, 1000, "0.1%"),
        (0, 0, "–"),
        (0.97, 1, "97.0%"),
        (1.02, 1, "102%"),
    ],
)
def test_a_part_is_never_shown_as_all_or_nothing(part: float, whole: float, shown: str) -> None:
    assert numbers.share(part, whole) == shown


@pytest.mark.parametrize(
    ("usd", "unpriced", "shown"),
    [
        ("0", False, "$0.00"),
        ("0", True, "unpriced"),
        ("1.5", True, "at least $1.5000"),
        ("0.0000001", False, "<$0.000001"),
        ("0.001478", False, "$0.001478"),
        ("0.0123", False, "$0.0123"),
        ("9.99999", False, "$10.0000"),
        ("12.345", False, "$12.34"),
        ("1234567.891", False, "$1,234,567.89"),
        (None, False, "unknown"),
        (None, True, "unknown"),
    ],
)
def test_money_says_when_it_is_a_lower_bound(usd: str | None, unpriced: bool, shown: str) -> None:
    assert numbers.money(None if usd is None else Decimal(usd), unpriced=unpriced) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1, "0 ms"),
        (0.0004, "0 ms"),
        (0.85, "850 ms"),
        (0.9999, "1.0 s"),
        (12.34, "12.3 s"),
        (59.96, "1 min 00 s"),
        (65, "1 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (93_600, "1 d 02 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, shown: str) -> None:
    assert numbers.duration(seconds) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0.4, "0 ms"),
        (12, "12 ms"),
        (999, "999 ms"),
        (1240, "1.24 s"),
        (12_345, "12.3 s"),
        (65_000, "1 min 05 s"),
    ],
)
def test_latencies_are_in_ms_or_seconds(ms: float, shown: str) -> None:
    assert numbers.milliseconds(ms) == shown


@pytest.mark.parametrize(
    ("actual", "planned", "shown"),
    [
        (112.4, 100, "+12.4%"),
        (95, 100, "−5%"),
        (100, 100, "±0%"),
        (100.01, 100, "±0%"),
        (5, 0, "–"),
        (300, 100, "+200%"),
    ],
)
def test_a_difference_has_a_sign(actual: float, planned: float, shown: str) -> None:
    assert numbers.difference(actual, planned) == shown


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (800, 800, "800 ms"),
        (800, 950, "800 – 950 ms"),
        (800, 1200, "800 ms – 1.20 s"),
        (1200, 1300, "1.20 – 1.30 s"),
    ],
)
def test_a_span_names_its_unit_once(low: float, high: float, shown: str) -> None:
    assert numbers.span(low, high, numbers.milliseconds) == shown
    assert numbers.span(0.5, 0.75, lambda part: numbers.share(part, 1)) == "50.0% – 75.0%"


def test_moments_are_in_utc_and_zero_is_unknown() -> None:
    assert numbers.moment(1_778_000_000) == "2026-05-05 16:53:20 UTC"
    assert numbers.moment(0) == "unknown"
