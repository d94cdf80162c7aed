"""The doctor before a simulator, a real Redis and real disks, each whole and broken."""

from __future__ import annotations

import json
import sqlite3

import pytest

from airflow_provider_llmbatch.cli import installation
from airflow_provider_llmbatch.cli.findings import Finding, as_json, as_text, fails
from airflow_provider_llmbatch.simulator.settings import read_keys
from tests.operators.stage import KEY
from tests.services.redis_server import free_port, running

PASSWORD = "canary/+redis"


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    with running(tmp_path_factory.mktemp("redis"), "--appendonly", "yes") as server:
        yield server


def levels(findings: list[Finding]) -> list[str]:
    return [one.level for one in findings]


def test_an_installation_that_is_well_has_one_line_each_and_nothing_to_mend(
    found, setting, connect, simulate, redis
):
    setting(state_url=redis.url)
    service = simulate(rpm=1000, tpm=10**6, models=("gpt-4o-mini",))
    connect(service.url, model="gpt-4o-mini", requests_per_minute=500, tokens_per_minute=900_000)
    told = found(call=True)
    assert {one.level for one in told} == {"ok"}
    assert not fails(told)
    assert not [one for one in told if one.remedy]
    shown = as_text(told)
    assert len(shown.splitlines()) == len(told)
    for words in (service.url, "50% of the 1,000", "90% of the 1,000,000", "noeviction", "o200k_base"):
        assert words in shown
    assert len(service.arrivals()) == 1
    assert json.loads(as_json(told))["ok"] is True


def test_no_key_and_no_password_is_shown_whatever_breaks(found, setting, connect, simulate, tmp_path):
    with running(tmp_path / "redis") as server:
        server.cli("config", "set", "requirepass", PASSWORD)
        quoted = PASSWORD.replace("/", "%2F").replace("+", "%2B")
        for address in (
            f"redis://:{quoted}@127.0.0.1:{server.port}/0",
            f"redis://:wrong-canary@127.0.0.1:{server.port}/0",
        ):
            setting(state_url=address)
            connect(
                simulate(keys=read_keys("a=sk-other")).url,
                key="sk-canary",
                model="m",
                headers={"X-Api-Key": "canary-h"},
            )
            told = found()
            shown = as_text(told) + as_json(told)
            assert "canary" not in shown
            assert f"127.0.0.1:{server.port}" in shown
            (endpoint,) = (one for one in told if one.what.startswith("endpoint"))
            assert (endpoint.level, endpoint.remedy) == (
                "fail",
                "paste a valid key into the connection (HTTP 401)",
            )
        (state,) = (one for one in told if one.what == "state")
        assert state.level == "fail"


def test_a_connection_that_is_not_there_or_cannot_be_read_fails_and_the_rest_is_looked_at(
    found, monkeypatch, connect, service
):
    connect(service.url, requests_per_minute="many")
    monkeypatch.setenv(
        "AIRFLOW_CONN_BROKEN", json.dumps({"conn_type": "llmbatch", "host": service.url, "extra": "{"})
    )
    told = found("connection", "endpoint", conn_ids=("llmbatch_default", "broken", "nobody"))
    assert levels(told) == ["fail"] * 3
    assert "requests_per_minute" in told[0].found
    assert "--conn-id" in told[2].remedy
    assert levels(found("storage")) == ["ok"]


def test_limits_that_the_service_does_not_grant_are_told_with_what_it_grants(found, connect, simulate):
    service = simulate(rpm=300, tpm=60_000)
    connect(service.url, model="gpt-4o-mini", requests_per_minute=500, key=KEY)
    assert levels(found("limits")) == ["unknown", "warn"]
    assert service.arrivals() == []
    requests, tokens = found("limits", call=True)
    assert (requests.level, tokens.level) == ("warn", "warn")
    assert "500, the service says 300" in requests.found
    assert "tokens_per_minute is not set, the service says 60,000" in tokens.found
    assert "set it to 60000" in tokens.remedy


def test_a_model_that_nobody_knows_is_found_before_a_task_is(found, connect, simulate):
    connect(simulate(models=("gpt-4o-mini",)).url, model="gpt-9", surplus=1)
    told = found("connection", "endpoint", "tokens", call=True)
    assert levels(told) == ["ok", "warn", "fail", "warn", "warn"]
    assert "surplus" in told[1].found
    assert "does not know the model 'gpt-9'" in told[2].found
    assert "price" in told[4].found


def test_an_endpoint_that_is_away_fails(found, connect):
    connect(f"http://127.0.0.1:{free_port()}/v1", model="m")
    (endpoint,) = found("endpoint")
    assert endpoint.level == "fail"
    assert endpoint.remedy == "look at host, port and scheme"


@pytest.mark.parametrize(
    ("options", "what", "level", "words"),
    [
        (("--maxmemory-policy", "allkeys-lru"), "state eviction", "warn", "allkeys-lru"),
        (("--appendonly", "no"), "state persistence", "warn", "does not append"),
        (("--maxmemory", "500kb", "--maxmemory-policy", "noeviction"), "state scripts", "fail", "maxmemory"),
    ],
)
def test_what_a_server_lacks_is_told(found, setting, tmp_path, options, what, level, words):
    with running(tmp_path / "redis", *options) as server:
        setting(state_url=server.url)
        (told,) = found(what)
    assert told.level == level
    assert words in told.found
    assert told.remedy


def test_a_server_that_grants_too_little_is_told_from_one_that_is_away(found, setting, redis):
    redis.cli("acl", "setuser", "weak", "on", ">pw", "~*", "+@connection", "+@read")
    setting(state_url=redis.url.replace("redis://", "redis://weak:pw@"))
    told = {one.what: one.level for one in found("state")}
    assert told == {
        "state": "ok",
        "state scripts": "fail",
        "state eviction": "unknown",
        "state persistence": "unknown",
    }
    redis.cli("acl", "deluser", "weak")
    setting(state_url=f"redis://127.0.0.1:{free_port()}/0")
    (state,) = found("state")
    assert (state.level, "start it" in state.remedy) == ("fail", True)


def test_the_look_at_a_server_leaves_nothing_there(found, setting, tmp_path):
    with running(tmp_path / "redis") as server:
        setting(state_url=server.url)
        assert "fail" not in levels(found("state"))
        assert server.cli("dbsize") == "0"


def test_state_and_results_on_one_disk_are_refused_where_tasks_run_elsewhere(found, monkeypatch, setting):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "KubernetesExecutor")
    told = {one.what: one for one in found("state", "storage", "queues")}
    assert {what: one.level for what, one in told.items()} == {
        "state": "fail",
        "storage": "fail",
        "queues": "unknown",
    }
    assert "results_path" in told["storage"].remedy
    setting(shared_filesystem=True)
    assert levels(found("state", "storage")) == ["ok", "ok", "unknown"]


def test_places_that_cannot_be_written_fail(found, setting, tmp_path):
    (tmp_path / "file").write_text("")
    setting(results_path=tmp_path / "file" / "results", state_url=f"sqlite:///{tmp_path}/other.db")
    (tmp_path / "other.db").write_text("no database")
    assert levels(found("storage", "state")) == ["fail", "fail"]
    setting(results_path="nothing-opens://bucket/results")
    (storage,) = found("storage")
    assert storage.level == "fail"


def test_a_look_leaves_nothing_behind_on_disk(found, setting, tmp_path):
    found("storage", "state")
    assert list((tmp_path / "results").iterdir()) == []
    assert not (tmp_path / "state.db").exists()
    sqlite3.connect(tmp_path / "state.db").close()
    assert levels(found("state")) == ["ok"]


def test_settings_that_cannot_be_read_are_one_finding_and_no_end(found, setting, connect, service):
    connect(service.url, model="gpt-4o-mini")
    setting(max_wait="soon")
    told = found()
    assert [one.what for one in told if one.level == "fail"] == ["settings"]
    assert {"versions", "endpoint llmbatch_default", "vocabulary"} <= {one.what for one in told}


def test_prompts_and_prices_that_cannot_be_read_are_told(found, setting, tmp_path):
    good, broken = tmp_path / "prompts" / "sort", tmp_path / "prompts" / "cut"
    for folder in (good, broken):
        folder.mkdir(parents=True)
        (folder / "1.yaml").write_text("system: Sort.\n")
    setting(prompts_path=tmp_path / "prompts")
    assert levels(found("prompts")) == ["ok"]
    (broken / "2.yaml").write_text("system: '{{ open'\n")
    (tmp_path / "prices.yaml").write_text("m: {input: cheap}\n")
    setting(prompts_path=tmp_path / "prompts", prices_path=tmp_path / "prices.yaml")
    told = found("prompts", "prices")
    assert levels(told) == ["fail", "ok", "fail"]
    assert "2.yaml" in told[0].found
    setting(prompts_path=tmp_path / "nowhere")
    assert levels(found("prompts")) == ["fail"]


def test_a_queue_that_no_worker_serves_fails():
    asked = {"io_queue": "io", "cpu_queue": None, "default_queue": "default"}
    served = {"celery@a": {"io", "cpu"}, "celery@b": {"io"}}
    io, default = installation.queues_with_workers(asked, served)
    assert (io.level, io.found) == ("ok", "io_queue is 'io', served by 2 of 2 workers")
    assert (default.level, default.remedy) == (
        "fail",
        "start a worker: airflow celery worker --queues default",
    )


def test_a_broker_that_cannot_be_asked_is_said_and_a_pool_of_green_threads_fails(found, monkeypatch, setting):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW__CELERY__POOL", "gevent")
    monkeypatch.setenv("AIRFLOW__CELERY__BROKER_URL", f"redis://127.0.0.1:{free_port()}/0")
    setting(single_host=True)
    pool, queues = found("worker pool", "queues")
    assert "gevent" in pool.found
    assert (queues.level, "broker" in queues.found) == ("fail", True)


def test_a_library_that_is_too_old_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setattr(
        installation.metadata, "requires", lambda name: ["redis>=99", "nothing-such>=1", 'x; extra=="s3"']
    )
    told = list(installation.check_versions())
    assert [(one.level, one.remedy) for one in told[1:]] == [
        ("fail", "install redis>=99"),
        ("fail", "install nothing-such>=1"),
    ]
