from __future__ import annotations

import json

import pytest
from airflow.sdk.exceptions import AirflowNotFoundException
from structlog.testing import capture_logs

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.hooks.llm import LLMBatchHook

KEY = "sk-canary-5f1e+/Z=="
URL = "https://llm.example/v1"


@pytest.fixture
def connect(monkeypatch):
    """Return a function that defines the connection ``llm`` the way a deployment does."""

    def define(text: str | None = None, **fields: object) -> LLMBatchHook:
        fields = {"conn_type": "llmbatch", "host": URL, "password": KEY, **fields}
        monkeypatch.setenv("AIRFLOW_CONN_LLM", text or json.dumps(fields))
        return LLMBatchHook("llm")

    return define


def test_a_connection_in_the_environment_becomes_settings(connect):
    found = connect(extra={"model": "m", "requests_per_minute": 600}).settings()
    assert (found.conn_id, found.base_url, found.model) == ("llm", URL, "m")
    assert found.limit("any", "m").requests_per_minute == 600
    assert found.credentials[0].key is not None
    assert found.credentials[0].key.reveal() == KEY


def test_a_connection_can_be_a_uri(connect):
    hook = connect("llmbatch://:sk-1@https%3A%2F%2Fllm.example%2Fv1?requests_per_minute=600&model=m")
    found = hook.settings()
    assert (found.base_url, found.model) == (URL, "m")
    assert found.limit("any", "m").requests_per_minute == 600


@pytest.mark.parametrize("conn_type", ["openai", "pydanticai"])
def test_connections_of_other_providers_are_read_as_they_stand(connect, conn_type):
    found = connect(conn_type=conn_type, host="", extra={"model": "openai:m"}, port=443).settings()
    assert found.base_url == "https://api.openai.com/v1"


def test_the_default_connection_is_llmbatch_default():
    assert LLMBatchHook().llm_conn_id == "llmbatch_default"


def test_a_connection_nobody_defined_is_airflows_own_error():
    with pytest.raises(AirflowNotFoundException, match="nowhere"):
        LLMBatchHook("nowhere").settings()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"port": 8000}, "port is 8000, and is not read; write the whole base URL into host"),
        ({"schema": "v1"}, "schema is 'v1', and is not read"),
        ({"login": "me"}, "login is set, and is not read"),
        ({"extra": "{'model': 'm'}"}, "extra is no JSON from line 1, column 2 on"),
        ({"extra": [1]}, "extra is a list; make it a JSON object"),
        ({"conn_type": "http"}, "conn_type is 'http'"),
        ({"extra": {"counts": KEY}}, "counts is '***'"),
    ],
)
def test_a_connection_that_cannot_be_used_is_refused_in_words(connect, fields, words):
    hook = connect(**fields)
    with pytest.raises(ConfigurationError) as caught:
        hook.settings()
    assert "Connection 'llm'" in str(caught.value)
    assert words in str(caught.value)
    assert "canary" not in str(caught.value)
    assert hook.test_connection() == (False, str(caught.value))


def test_fields_that_nothing_reads_are_warned_about(connect):
    hook = connect(extra={"owner": "data team"})
    with capture_logs() as logged:
        hook.settings()
    assert [(e["log_level"], e["event"]) for e in logged] == [
        ("warning", "Connection 'llm' has extra fields that nothing reads: owner")
    ]


def test_the_connection_is_read_afresh_each_time(connect):
    hook = connect()
    before = hook.settings().credentials[0]
    connect(password="sk-rotated")
    assert hook.settings().credentials[0].id != before.id


def test_secrets_are_masked_once_the_connection_was_read(connect):
    """P90."""
    from airflow.sdk.log import redact

    connect(
        host=f"{URL}?sig=sig-canary-77",
        extra={
            "credentials": [{"api_key": "sk-canary-2"}],
            "headers": {"X-Api-Key": "head-canary-3"},
            "proxy": "http://me:proxy-canary-4@proxy:3128",
        },
    ).settings()
    seen = (
        f"Bearer {KEY}, sk-canary-5f1e%2B%2FZ%3D%3D, c2stY2FuYXJ5LTVmMWUrL1o9PQ==, ?sig=sig-canary-77, "
        "sk-canary-2, head-canary-3, http://me:proxy-canary-4@proxy:3128"
    )
    shown = redact(seen)
    assert "canary" not in shown
    assert "c2stY2Fu" not in shown
