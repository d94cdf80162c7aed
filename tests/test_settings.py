from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.settings import Settings, load_settings, parse_settings


def settings(**texts: str | None) -> Settings:
    return parse_settings(texts.get, "/opt/airflow")


def test_nothing_needs_to_be_set():
    found = settings()
    assert found.results_path == "/opt/airflow/llmbatch/results"
    assert found.state_url == "sqlite:////opt/airflow/llmbatch/state.db"
    assert (found.prompts_path, found.prices_path, found.default_encoding) == (None, None, "o200k_base")
    assert (found.io_queue, found.cpu_queue, found.gpu_queue) == (None, None, None)
    assert (found.single_host, found.shared_filesystem) == (False, False)
    assert (found.defer_after, found.max_wait) == (60.0, 21600.0)
    assert (found.statsd_host, found.statsd_port, found.statsd_prefix) == (None, 8125, None)


def test_texts_become_values():
    found = settings(
        results_path="s3://bucket/results/",
        state_url="redis://:pw@redis:6379/0",
        prompts_path="/prompts",
        prices_path="/prices.yaml",
        default_encoding="cl100k_base",
        io_queue="io",
        single_host="yes",
        shared_filesystem="TRUE",
        defer_after="0.5",
        max_wait=" 3600 ",
        statsd_host="exporter",
        statsd_port="9125",
        statsd_prefix="prod.eu-1",
    )
    assert found.results_path == "s3://bucket/results"
    assert found.state_url == "redis://:pw@redis:6379/0"
    assert (found.prompts_path, found.prices_path) == (Path("/prompts"), Path("/prices.yaml"))
    assert (found.default_encoding, found.io_queue) == ("cl100k_base", "io")
    assert (found.single_host, found.shared_filesystem) == (True, True)
    assert (found.defer_after, found.max_wait) == (0.5, 3600.0)
    assert (found.statsd_host, found.statsd_port, found.statsd_prefix) == ("exporter", 9125, "prod.eu-1")


def test_an_empty_text_is_as_good_as_none():
    assert settings(io_queue="", results_path=" ", single_host="") == settings()


def test_the_address_of_the_state_is_not_shown():
    assert "pw" not in repr(settings(state_url="redis://:pw@redis"))


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("results_path", "results", "is 'results', a relative path; give an absolute path or a URL"),
        ("results_path", "~/results", "a relative path"),
        ("prompts_path", "prompts", "a relative path"),
        ("prices_path", "prices.yaml", "a relative path"),
        ("state_url", "/var/state.db", "is no URL; give sqlite:////<path>"),
        ("state_url", "postgres://:pw@db/x", "has the scheme 'postgres'"),
        ("state_url", "redis://", "has the scheme 'redis'"),
        ("state_url", "sqlite:///state.db", "write four slashes"),
        ("default_encoding", "p50k", "is 'p50k'; set it to one of o200k_base, cl100k_base"),
        ("single_host", "maybe", "is 'maybe'; set it to True or False"),
        ("defer_after", "soon", "is 'soon'; set it to a number of seconds above 0"),
        ("defer_after", "0", "is '0'"),
        ("max_wait", "nan", "is 'nan'"),
        ("max_wait", "inf", "is 'inf'"),
        ("max_wait", "30", "is 30, less than defer_after (60)"),
        ("statsd_port", "70000", "is '70000'; set it to a port from 1 to 65535"),
        ("statsd_port", "0", "is '0'"),
        ("statsd_port", "statsd", "is 'statsd'"),
        ("statsd_prefix", "größe", "is 'größe'; use letters, digits, _ and -, with dots only between them"),
        ("statsd_prefix", "prod.", "is 'prod.'"),
    ],
)
def test_a_bad_value_is_refused_by_option_value_and_remedy(option, text, words):
    with pytest.raises(ConfigurationError) as caught:
        settings(**{option: text})
    message = str(caught.value)
    assert message.startswith(f"[llmbatch] {option} (or AIRFLOW__LLMBATCH__{option.upper()}) ")
    assert words in message
    assert "pw" not in message


def test_airflow_and_its_environment_are_where_settings_come_from(monkeypatch, airflow_home):
    monkeypatch.setenv("AIRFLOW__LLMBATCH__GPU_QUEUE", "gpus")
    monkeypatch.setenv("AIRFLOW__LLMBATCH__SINGLE_HOST", "True")
    found = load_settings()
    assert (found.gpu_queue, found.single_host) == ("gpus", True)
    assert found.results_path == f"{airflow_home}/llmbatch/results"


def test_the_address_of_the_state_can_come_from_a_command(monkeypatch):
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL_CMD", "echo redis://from-command:6379")
    assert load_settings().state_url == "redis://from-command:6379"
