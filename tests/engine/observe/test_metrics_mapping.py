"""The shipped mapping for statsd_exporter, held against its documented rules and our own datagrams."""

from __future__ import annotations

import re
from contextlib import closing
from decimal import Decimal

import pytest

from airflow_provider_llmbatch.engine.items import Cost, Outcome, Usage
from airflow_provider_llmbatch.engine.observe.events import (
    CallFailed,
    Event,
    ItemDone,
    Parked,
    Pulse,
    RunEnded,
    RunStarted,
    StateBack,
    StateLost,
    Throttled,
)
from airflow_provider_llmbatch.engine.observe.metrics import MetricsObserver, connect
from tests.engine.observe.statsd_server import Exporter, StatsdServer

KEYS = {"match", "match_metric_type", "name", "help", "labels", "scale", "ttl"}


def one_of_each() -> list[Event]:
    """Return events that make every metric there is."""
    spent = {
        "usage": Usage(prompt=100, cached=40, completion=10, reasoning=3),
        "cost": Cost(usd=Decimal("0.25")),
    }
    where = {"endpoint": "https://api.example.com/v1", "model": "vendor/llama:free"}
    return [
        RunStarted(items=5, resumed=2),
        ItemDone(outcome=Outcome.OK, queue_ms=1, call_ms=900, **spent, **where),
        ItemDone(outcome=Outcome.OK, queue_ms=1, call_ms=3000, salvage="fence", **spent, **where),
        ItemDone(
            outcome=Outcome.EXHAUSTED, queue_ms=1, call_ms=0, usage=Usage(), cost=Cost(unpriced=True), **where
        ),
        CallFailed(kind="http", status=503, code=None, message="", advice="Retry", item_id="1", attempt=1),
        Throttled(delay_s=3, **where),
        Parked(what="endpoint", name="main", reason="three failures"),
        StateLost(reason="refused", policy="paused"),
        StateBack(away_s=3),
        Pulse(
            waited_s={"acme/x/tokens_per_minute": 1.5},
            use={"acme/x/tokens_per_minute": 0.97},
            late_arrivals=1,
        ),
        RunEnded(state="complete", possible_double_paid=3),
    ]


@pytest.fixture(params=[None, "airflow", "prod.eu-1"])
def exporter(request: pytest.FixtureRequest) -> Exporter:
    """Return an exporter that has taken one of each metric, sent by UDP with a prefix or without."""
    with StatsdServer() as server, closing(connect("127.0.0.1", server.port, request.param)) as client:
        metrics = MetricsObserver(client, job="größe", task="send")
        for event in one_of_each():
            metrics.on(event)
    return Exporter().take(server.samples)


def test_every_metric_finds_its_rule_and_every_rule_a_metric(exporter: Exporter) -> None:
    assert exporter.unmapped == []
    assert {*exporter.series, *exporter.seconds} == {rule["name"] for rule in exporter.rules}


def test_job_and_status_are_labels_and_the_numbers_add_up(exporter: Exporter) -> None:
    (job,) = {dict(labels)["job"] for series in exporter.series.values() for labels in series}
    assert re.fullmatch(r"gr_e-[0-9a-f]{10}", job)
    here = {"job": job, "task": "send"}
    assert exporter.of("llmbatch_items_total", status="ok", **here) == 2
    assert exporter.of("llmbatch_items_total", status="exhausted", **here) == 1
    ((labels, usd),) = exporter.series["llmbatch_usd_total"].items()
    model = dict(labels)["model"]
    assert (usd, model.startswith("vendor_llama_free-")) == (0.5, True)
    assert exporter.of("llmbatch_tokens_total", direction="in", model=model, **here) == 200
    assert exporter.of("llmbatch_failed_calls_total", kind="http", status="503", **here) == 1
    assert exporter.of("llmbatch_waited_seconds_total", limit="tokens_per_minute", **here) == 1.5
    assert exporter.of("llmbatch_limit_use_ratio", limit="tokens_per_minute", **here) == 0.97
    assert exporter.of("llmbatch_possible_double_paid_total", **here) == 3


def test_latencies_become_a_histogram_of_seconds(exporter: Exporter) -> None:
    (labels,) = exporter.seconds["llmbatch_latency_seconds"]
    counts = [exporter.bucket("llmbatch_latency_seconds", le, **dict(labels)) for le in (0.5, 1, 2, 4)]
    assert counts == [0, 1, 1, 2]


def test_buckets_double_from_below_a_second_up_to_minutes() -> None:
    buckets = Exporter().defaults["histogram_options"]["buckets"]
    assert buckets == [buckets[0] * 2**place for place in range(len(buckets))]
    assert buckets[0] < 1.0
    assert 1.0 in buckets
    assert buckets[-1] >= 300


def test_the_file_uses_only_what_the_exporter_knows() -> None:
    exporter = Exporter()
    assert set(exporter.defaults) == {"observer_type", "histogram_options", "match_type", "ttl"}
    names = [rule["name"] for rule in exporter.rules]
    assert len(set(names)) == len(names), "metrics of one name must have the same labels and type"
    for rule in exporter.rules:
        assert set(rule) <= KEYS
        assert rule["match_metric_type"] in {"counter", "gauge", "observer"}
        assert re.fullmatch(r"[a-z_][a-z0-9_]+", rule["name"])
        assert all(re.fullmatch(r"[a-z_][a-z0-9_]+", label) for label in rule["labels"])
        # What Go's expressions and Python's have in common, and mean the same by.
        assert re.fullmatch(r"\^\(\?:\.\+\\\.\)\?((\\\.)|[a-z_]|\(\[\^\.\]\+\))+\$", rule["match"])


@pytest.mark.parametrize(
    "name", ["llmbatch.a.b.items", "llmbatch.a.b.items.ok.x", "xllmbatch.a.b.items.ok", "llmbatch.a.items.ok"]
)
def test_a_name_of_somebody_else_is_left_alone(name: str) -> None:
    assert not [rule for rule in Exporter().rules if re.search(rule["match"], name)]
