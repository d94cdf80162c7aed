from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.observe.latency import COLUMNS, LatencyHistogram, LatencyMap
from airflow_provider_llmbatch.errors import InputError

LATENCIES = st.lists(st.floats(min_value=0.01, max_value=86_400_000), min_size=1, max_size=60)
CALLS = st.lists(st.tuples(st.floats(0, 2e9), st.floats(0, 1e7)), min_size=1, max_size=30)


def histogram(latencies: list[float]) -> LatencyHistogram:
    made = LatencyHistogram()
    for ms in latencies:
        made.add(ms)
    return made


def latency_map(calls: list[tuple[float, float]]) -> LatencyMap:
    made = LatencyMap()
    for at, ms in calls:
        made.add(at, ms)
    return made


@given(LATENCIES, st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_off_by_two_percent_at_most(latencies: list[float], share: float) -> None:
    exact = sorted(latencies)[max(1, math.ceil(share * len(latencies))) - 1]
    assert histogram(latencies).quantile(share) == pytest.approx(exact, rel=0.02)


@given(LATENCIES, LATENCIES)
def test_merged_histograms_are_that_of_all_calls(one: list[float], other: list[float]) -> None:
    merged = histogram(one)
    merged.merge(histogram(other))
    assert merged.to_json() == histogram(one + other).to_json()
    assert len(merged) == len(one) + len(other)


@given(LATENCIES)
def test_the_json_form_reads_back_as_it_was(latencies: list[float]) -> None:
    made = histogram(latencies)
    assert LatencyHistogram.from_json(json.loads(json.dumps(made.to_json()))).summary() == made.summary()


def test_the_json_form_is_bounded() -> None:
    luck = random.Random(1)
    made = histogram([math.exp(luck.uniform(-6, 20)) for _ in range(20_000)])
    assert len(json.dumps(made.to_json())) < 10_000


def test_the_summary_has_an_exact_maximum() -> None:
    made = histogram([float(ms) for ms in range(1, 1001)])
    summary = made.summary()
    assert summary["max"] == 1000.0
    assert summary["p50"] == pytest.approx(500, rel=0.02)
    assert summary["p99"] == pytest.approx(990, rel=0.02)
    assert list(summary) == ["p50", "p95", "p99", "max"]


def test_nothing_counted_has_no_quantile() -> None:
    assert LatencyHistogram().summary() == {}
    with pytest.raises(ValueError, match="no quantile"):
        LatencyHistogram().quantile(0.5)


@pytest.mark.parametrize("ms", [0.0, -5.0, math.nan, math.inf, 1e300])
def test_what_is_no_duration_does_no_harm(ms: float) -> None:
    made = histogram([ms])
    assert len(made) == 1
    assert math.isfinite(made.summary()["max"])
    latency_map([(0.0, ms)]).to_json()


@pytest.mark.parametrize(
    "data", [{}, {"ratio": 2, "max": 1, "buckets": {}}, {"ratio": 1.04, "max": 1, "buckets": 3}]
)
def test_foreign_latencies_are_refused(data: dict[str, object]) -> None:
    with pytest.raises(InputError):
        LatencyHistogram.from_json(data)


def test_the_map_counts_by_time_and_latency() -> None:
    assert latency_map([(100.0, 900), (100.9, 1000), (102.0, 3000)]).to_json() == {
        "start": 100,
        "step_s": 1,
        "below_ms": [1024, 2048, 4096],
        "counts": [[2, 0, 0], [0, 0, 0], [0, 0, 1]],
    }
    assert LatencyMap().to_json() == {"start": 0, "step_s": 1, "below_ms": [], "counts": []}


@given(CALLS)
def test_the_map_stays_small_and_loses_no_call(calls: list[tuple[float, float]]) -> None:
    data = latency_map(calls).to_json()
    assert len(data["counts"]) <= COLUMNS
    assert sum(map(sum, data["counts"])) == len(calls)
    assert data["start"] <= min(at for at, _ in calls)
    assert max(at for at, _ in calls) < data["start"] + data["step_s"] * len(data["counts"])


@given(CALLS, CALLS)
def test_merged_maps_lose_no_call(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> None:
    merged = latency_map(one)
    merged.merge(latency_map(other))
    whole, data = latency_map(one + other).to_json(), merged.to_json()
    assert sum(map(sum, data["counts"])) == len(one) + len(other)
    assert len(data["counts"]) <= COLUMNS
    assert data == whole
