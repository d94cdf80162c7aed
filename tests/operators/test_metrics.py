"""The metrics of a task, as they arrive at a statsd server."""

from __future__ import annotations

import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import pytest
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.observability.metrics.statsd_logger import get_statsd_logger
from airflow.sdk.observability.stats import Stats

from airflow_provider_llmbatch.errors import StoppedError
from tests.engine.observe.statsd_server import Exporter, StatsdServer

PRICES = {"m-1": {"input": "1.00", "output": "2.00"}}


@pytest.fixture
def listening(monkeypatch) -> Callable[[], AbstractContextManager[StatsdServer]]:
    """Return a context with a server that ``[llmbatch]`` names; its samples are there afterwards."""

    @contextmanager
    def _listen() -> Iterator[StatsdServer]:
        with StatsdServer() as server:
            monkeypatch.setenv("AIRFLOW__LLMBATCH__STATSD_HOST", "127.0.0.1")
            monkeypatch.setenv("AIRFLOW__LLMBATCH__STATSD_PORT", str(server.port))
            monkeypatch.setenv("AIRFLOW__LLMBATCH__STATSD_PREFIX", "prod")
            yield server

    return _listen


def test_the_numbers_of_a_task_arrive_and_add_up(stage, simulate, connect, listening):
    service = simulate(
        {"match": {"contains": "number 7", "attempt": 1}, "reply": {"status": 503}},
        {"match": {"contains": "number 8"}, "reply": {"refusal": "No."}},
    )
    connect(service.url, prices=PRICES, tokens_per_minute=10**9)
    with listening() as statsd:
        value = stage.run(stage.dispatch(source=stage.items(40), task_id="group.send", max_failed=1))
    metrics = Exporter().take(statsd.samples)
    assert metrics.unmapped == []
    ((job, task),) = {
        (dict(labels)["job"], dict(labels)["task"]) for series in metrics.series.values() for labels in series
    }
    assert (job, task.startswith("group_send-")) == ("d", True)
    here = {"job": job, "task": task}

    def total(name: str, **labels: str) -> float:
        return sum(n for found, n in metrics.series[name].items() if labels.items() <= dict(found).items())

    for status, count in value["counts"].items():
        assert metrics.of("llmbatch_items_total", status=status, **here) == count
    assert total("llmbatch_items_total") == value["items"] == 40
    assert total("llmbatch_tokens_total", direction="in") == value["usage"]["prompt"]
    assert total("llmbatch_tokens_total", direction="out") == value["usage"]["completion"]
    assert total("llmbatch_usd_total") == pytest.approx(float(value["cost"]["usd"]), abs=1e-6)
    assert total("llmbatch_usd_total") > 0
    assert total("llmbatch_failed_calls_total", kind="http", status="503") == 1
    assert total("llmbatch_possible_double_paid_total") == value["possible_double_paid"]
    assert metrics.of("llmbatch_runs_total", status="complete", **here) == 1
    assert "llmbatch_limit_use_ratio" in metrics.series
    latencies = [
        s for all_seconds in metrics.seconds["llmbatch_latency_seconds"].values() for s in all_seconds
    ]
    assert len(latencies) == 40
    assert all(0.005 < seconds < 5 for seconds in latencies)


def test_a_second_try_counts_only_what_it_did(stage, simulate, connect, listening):
    service = simulate({"match": {"nth": 5}, "reply": {"status": 401, "error": {"code": "invalid_api_key"}}})
    connect(service.url, max_in_flight=1)
    task = stage.dispatch(source=stage.items(20))
    with listening() as statsd:
        with pytest.raises(AirflowFailException, match="No credential is left"):
            stage.run(task)
        stage.run(task)
    counters = Counter({name.removeprefix("prod.llmbatch.d.t."): n for name, n in statsd.counters().items()})
    assert counters["items.ok"] == 20
    assert counters["resumed"] == 4
    assert (counters["runs.stopped"], counters["runs.complete"]) == (1, 1)


def test_a_killed_task_still_sends_what_it_counted(stage, simulate, connect, listening):
    connect(simulate(latency_s=0.05).url, max_in_flight=4)
    task = stage.dispatch(source=stage.items(500))
    under_way = threading.Event()
    with listening() as statsd, ThreadPoolExecutor(1) as threads:
        statsd.on_datagram = lambda text: under_way.set() if ".items.ok:" in text else None
        ending = threads.submit(stage.run, task)
        assert under_way.wait(30)
        task.on_kill()
        with pytest.raises(StoppedError, match="told to end"):
            ending.result()
    counters = Counter({name.removeprefix("prod.llmbatch.d.t."): n for name, n in statsd.counters().items()})
    assert 0 < counters["items.ok"] == len(stage.rows()) < 500
    assert counters["runs.stopped"] == 1


def test_airflows_own_metrics_are_the_default(stage, monkeypatch):
    clients = []

    def start():
        clients.append(get_statsd_logger())
        return clients[-1]

    # What the task runner does when [metrics] statsd_on is set.
    takes = inspect.signature(Stats.initialize).parameters
    legacy = {"export_legacy_names": False} if "export_legacy_names" in takes else {}
    with StatsdServer() as server:
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_HOST", "127.0.0.1")
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_PORT", str(server.port))
        Stats.initialize(factory=start, **legacy)
        try:
            stage.run(stage.dispatch(source=stage.items(5)))
        finally:
            Stats.initialize(factory=NoStatsLogger, **legacy)
            for client in clients:
                client.statsd.close()
    assert server.counters()["airflow.llmbatch.d.t.items.ok"] == 5


def test_a_server_that_nobody_knows_costs_a_line_and_no_batch(stage, monkeypatch, capsys):
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATSD_HOST", "no-such-host.invalid")
    assert stage.run(stage.dispatch(source=stage.items(3)))["counts"] == {"ok": 3}
    assert "No metrics are sent: [llmbatch] statsd_host is 'no-such-host.invalid'" in capsys.readouterr().out


def test_a_server_that_is_not_there_costs_nothing(stage, monkeypatch):
    with StatsdServer() as server:
        port = server.port
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATSD_HOST", "127.0.0.1")
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATSD_PORT", str(port))
    assert stage.run(stage.dispatch(source=stage.items(3)))["counts"] == {"ok": 3}
