from __future__ import annotations

import base64
import copy
import dataclasses
import json
import pickle
from urllib.parse import quote

import pytest

from airflow_provider_llmbatch.engine.connection import Secret, parse
from airflow_provider_llmbatch.errors import ConfigurationError

KEY = "sk-canary-5f1e+/Z=="
URL = "https://llm.example/v1"


@pytest.mark.parametrize("show", [repr, str, "{}".format, "{!s:>40}".format], ids=range(4))
def test_a_secret_does_not_show_itself(show):
    assert show(Secret(KEY)).strip() == "Secret('***')"


@pytest.mark.parametrize("store", [pickle.dumps, json.dumps])
def test_a_secret_cannot_be_stored(store):
    with pytest.raises(TypeError):
        store(Secret(KEY))


def test_copies_of_a_secret_are_the_secret_itself():
    secret = Secret(KEY)
    assert copy.copy(secret) is copy.deepcopy(secret) is secret


def test_secrets_compare_by_value():
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2


def everything_secret():
    return parse(
        "llm",
        host=f"{URL}?sig={KEY}q",
        password=KEY,
        extra={
            "credentials": [{"api_key": f"{KEY}2", "account": "team"}],
            "headers": {"X-Api-Token": f"{KEY}h", "X-Team": "research"},
            "proxy": f"http://me:{KEY}p@proxy:3128",
        },
    )


def test_the_settings_show_no_secret_however_they_are_printed():
    found = everything_secret()
    texts = [
        repr(found),
        str(found),
        repr(found.credentials),
        repr(dataclasses.asdict(found)),
        found.base_url,
    ]
    assert not [t for t in texts if "canary" in t]


def test_every_secret_is_listed_for_masking_in_all_its_spellings():
    secrets = everything_secret().secrets()
    for text in (KEY, f"{KEY}2", f"{KEY}q", f"{KEY}h", f"http://me:{KEY}p@proxy:3128"):
        assert text in secrets
        assert quote(text, safe="") in secrets
        assert base64.b64encode(text.encode()).decode().rstrip("=") in secrets
    assert "research" not in secrets


FIELDS = [
    "model",
    "counts",
    "requests_per_minute",
    "timeout_s",
    "credentials",
    "limits",
    "headers",
    "proxy",
    "api",
    "prices",
    "azure_deployment",
    "context_window",
    "kounts",
    "credential",
]
VALUES = [
    KEY,
    [KEY],
    {KEY: 1},
    {"x": KEY},
    [{"api_key": KEY}],
    [{"apikey": KEY}],
    [{"models": KEY}],
    f"[{KEY}",
]


def refusal_if_any(**extra):
    try:
        parse("llm", host=URL, password=KEY, extra=extra)
    except ConfigurationError as error:
        return f"{error!r} {error.__cause__!r}"
    return ""


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_no_refusal_shows_a_key_wherever_it_was_put(field, value):
    """P90."""
    assert "canary" not in refusal_if_any(**{field: value})


def test_a_refused_url_shows_neither_login_nor_query():
    """P90."""
    with pytest.raises(ConfigurationError) as caught:
        parse("llm", host=f"//user:{KEY}@llm.example/v1?key={KEY}", password=None, extra={})
    assert "host is 'llm.example/v1', which is no URL" in str(caught.value)
    assert "canary" not in str(caught.value)
