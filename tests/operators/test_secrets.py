"""Keys stay in the connection: in no log, file, state, XCom or page, in none of the forms they can take."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from airflow_provider_llmbatch.plugins.pages import report_page

# Characters that URLs and JSON write in another way.
KEY = "sk-canary/0+1=2&key"
HEADER = "header-canary/3+4=5"
QUERY = "query-canary/6+7"
CANARIES = (KEY, HEADER, QUERY)


def plain_forms(secret: str) -> set[str]:
    """Return the spellings of a secret in texts, URLs and JSON."""
    return {secret, quote(secret, safe=""), quote_plus(secret), secret.replace("/", "\\/")}


def encoded_forms(secret: str) -> set[str]:
    """Return the secret inside of longer texts in base64, at each of the three places of a group."""
    encodings = (base64.b64encode, base64.urlsafe_b64encode)
    return {encode(b"x" * n + secret.encode() + b"xxx").decode() for n in range(3) for encode in encodings}


def forms(secret: str) -> Iterator[str]:
    """Yield what to look for: of base64 the part that the neighbours do not change."""
    yield from plain_forms(secret)
    yield from (encoded[4 : 4 + 4 * (len(secret) // 3 - 1)] for encoded in encoded_forms(secret))


def echo(secret: str) -> str:
    """Return a text that holds a secret in many spellings."""
    return " ".join([*plain_forms(secret), *encoded_forms(secret)])


FAULTS = {
    "number 0": {
        "status": 401,
        "echo_authorization": True,
        "error": {"code": "invalid_api_key", "message": "no"},
    },
    "number 1": {"status": 400, "echo_authorization": True, "error": {"message": "no " + echo(KEY)}},
    "number 2": {"content": echo(KEY) + echo(HEADER) + echo(QUERY)},
    "number 3": {"refusal": "I was given " + echo(KEY)},
    "number 4": {"status": 503, "body": f"<html>{echo(HEADER)}</html>"},
    "number 5": {"body": {"error": {"code": 502, "message": echo(KEY)}, "choices": None}},
    "number 6": {"body": {"unknown": echo(QUERY)}},
}


def leaks(texts: dict[str, str]) -> list[str]:
    """Return where a canary was found."""
    spellings = {form: secret for secret in CANARIES for form in forms(secret)}
    return [
        f"{where}: {secret} as {form}"
        for where, text in texts.items()
        for form, secret in spellings.items()
        if form in text
    ]


def files(folder: Path) -> dict[str, str]:
    return {str(path): path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def connected(stage, connect):
    """Lead the connection to the stage's service, with a canary in every place that can hold one."""
    connect(
        f"{stage.service.url}?code={quote(QUERY, safe='')}",
        key=KEY,
        headers={"X-Api-Token": HEADER},
    )
    return stage


def test_the_search_finds_what_is_there():
    assert (
        len(leaks({"a": f"x{quote(KEY, safe='')}x", "b": base64.b64encode(b"12" + HEADER.encode()).decode()}))
        >= 2
    )
    assert leaks({"c": "nothing"}) == []


@pytest.mark.parametrize("number", [None, *range(len(FAULTS))])
def test_no_canary_is_anywhere_after_a_batch_whatever_the_service_echoes(connected, capfd, number):
    stage = connected
    rules = [{"match": {"contains": text}, "reply": fault} for text, fault in FAULTS.items()]
    stage.service.play(*([] if number is None else [rules[number]]))
    source = stage.items(len(FAULTS))
    xcoms = [stage.run(stage.split(source=source))]
    with suppress(Exception):
        xcoms.append(stage.run(stage.dispatch(chunk=xcoms[0][0], max_attempts=1)))
    xcoms.append(stage.instance.xcoms)
    manifest = xcoms[-1]["return_value"] if "return_value" in xcoms[-1] else xcoms[1]
    xcoms.append(stage.run(stage.report(manifests=manifest, plan=xcoms[0])))
    assert len(stage.service.arrivals()) >= 1
    printed = capfd.readouterr()
    found = files(stage.folder)
    assert any("ledger" in name for name in found)
    assert any("state.db" in name for name in found)
    assert any("plan.json" in name for name in found)
    shown = {"page": report_page("d", "r", "t").html, "xcoms": json.dumps(xcoms)}
    assert leaks({"stdout": printed.out, "stderr": printed.err, **shown, **found}) == []


def test_no_canary_is_in_the_words_about_a_service_that_is_not_there(stage, connect, capfd):
    connect(f"http://127.0.0.1:9/v1?code={quote(QUERY, safe='')}", key=KEY, headers={"X-Api-Token": HEADER})
    with pytest.raises(Exception, match="exhausted") as failed:
        stage.run(stage.dispatch(source=stage.items(2), max_attempts=1))
    printed = capfd.readouterr()
    texts = {"stdout": printed.out, "stderr": printed.err, "error": repr(failed.value), **files(stage.folder)}
    assert leaks(texts) == []


@pytest.mark.parametrize(
    "extra", [{"requests_per_minute": KEY}, {"headers": KEY}, {"credentials": [{"key": KEY}]}]
)
def test_no_canary_is_in_the_words_about_a_broken_connection(stage, connect, capfd, extra):
    connect(stage.service.url, key=KEY, **extra)
    with pytest.raises(Exception, match="Connection 'llmbatch_default'") as failed:
        stage.run(stage.dispatch(source=stage.items(2)))
    assert leaks({"stdout": capfd.readouterr().out, "error": repr(failed.value)}) == []
