"""Keys that expire, from a function that the installation names."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.hooks.llm import LLMBatchHook

PROVIDERS = """
import itertools, time
numbers = itertools.count(1)

def plain(conn_id):
    return f"token-{conn_id}-{next(numbers)}"

def dated(conn_id):
    return "token-with-an-end", time.time() + 3600

def expired(conn_id):
    return "token-of-yesterday", time.time() - 1

def broken(conn_id):
    raise RuntimeError("the secret is swordfish")

def empty(conn_id):
    return ""
"""


@pytest.fixture
def hook(monkeypatch, tmp_path: Path):
    """Return a function that makes a connection with a provider."""
    (tmp_path / "company_tokens.py").write_text(PROVIDERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("plain", "dated", "expired", "broken", "empty")
    listed = {name: f"company_tokens.{name}" for name in names} | {"missing": "company_tokens.nothing"}
    monkeypatch.setenv("AIRFLOW__LLMBATCH__TOKEN_PROVIDERS", json.dumps(listed))

    def make(provider: str, password: str = "") -> LLMBatchHook:
        extra = {"token_provider": provider}
        connection = {"conn_type": "llmbatch", "host": "https://llm.example/v1", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_LLM", json.dumps({**connection, "password": password}))
        return LLMBatchHook("llm")

    yield make
    sys.modules.pop("company_tokens", None)


def test_each_reading_asks_for_a_fresh_key_and_the_account_stays(hook):
    found = [hook("plain").settings() for _ in range(2)]
    keys = [one.credentials[0].key.reveal() for one in found]
    assert keys == ["token-llm-1", "token-llm-2"]
    assert {(one.credentials[0].id, one.credentials[0].account) for one in found} == {("plain", "plain")}
    assert found[0].expires_at is None


def test_when_a_key_expires_is_known(hook):
    assert hook("dated").settings().expires_at == pytest.approx(time.time() + 3600, abs=60)


@pytest.mark.parametrize(
    ("provider", "complaint"),
    [
        ("company_tokens.plain", "does not list; it lists"),
        ("broken", "failed for connection 'llm' with RuntimeError"),
        ("missing", "failed for connection 'llm' with AttributeError"),
        ("empty", "gave no text"),
        ("expired", "is expired already"),
    ],
)
def test_a_provider_that_cannot_be_used_is_named_without_its_words(hook, provider: str, complaint: str):
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        hook(provider).settings()
    assert "swordfish" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_password_beside_a_provider_is_refused(hook):
    with pytest.raises(ConfigurationError, match="both a password and a token_provider"):
        hook("plain", "sk-0123456789").settings()
