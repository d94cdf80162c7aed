"""No secret leaves with what comes back, in whatever spelling."""

from __future__ import annotations

import base64
import html
import json
import re
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.dispatch.redact import REDACTED, Redactor
from airflow_provider_llmbatch.engine.exchange import Failure, Reply

CANARY = 'sk-canary/a+b=c"d\\e-0123456789'
redactor = Redactor([CANARY, "abc"])


def spellings() -> dict[str, str]:
    raw = CANARY.encode()
    found = {
        "as it stands": CANARY,
        "in a sentence": f"Incorrect API key provided: {CANARY}.",
        "in a URL": f"https://host/v1?api-key={quote(CANARY, safe='')}",
        "in a URL, slashes left": quote(CANARY),
        "in a form": quote_plus(CANARY),
        "in a URL, small letters": re.sub("%..", lambda code: code[0].lower(), quote(CANARY, safe="")),
        "in JSON": json.dumps({"key": CANARY}),
        "in JSON, slashes escaped": json.dumps(CANARY).replace("/", "\\/"),
    }
    for before in ("", "a", "ab", "user:"):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            name = f"in base64 behind {len(before)} bytes ({encode.__name__})"
            found[name] = encode(before.encode() + raw + b" and more").decode()
    return found


def shown(text: str) -> list[str]:
    """Return the parts of the secret that can still be read, also by decoding."""
    texts = [text]
    for word in text.replace('"', " ").split():
        padded = word + "=" * (-len(word) % 4)
        for decode in (base64.b64decode, base64.urlsafe_b64decode):
            try:
                texts.append(decode(padded).decode("latin-1"))
            except ValueError:
                continue
    return [part for part in (CANARY[3:15], CANARY[-10:]) if any(part in one for one in texts)]


@pytest.mark.parametrize("name", spellings())
def test_the_secret_cannot_be_read_in_any_spelling(name: str):
    """P90."""
    text = spellings()[name]
    clean = redactor.text(text)
    assert REDACTED in clean
    assert shown(clean) == []
    assert redactor.body(text.encode()) == clean.encode()


@pytest.mark.parametrize("name", ["message", "code", "type", "param", "request_id"])
def test_what_decoding_brings_to_light_is_taken_out_of_a_failure(name: str):
    """P90."""
    escaped = "".join(f"\\u{ord(char):04x}" for char in CANARY)
    body = redactor.body(f'{{"{name}": "{escaped}"}}'.encode())
    seen = Failure(**{"kind": "http", "message": "", **json.loads(body)})
    assert getattr(seen, name) == CANARY
    assert getattr(redactor.seen(seen), name) == REDACTED


@pytest.mark.parametrize("name", ["text", "refusal", "reasoning", "model", "request_id", "finish_reason"])
def test_what_decoding_brings_to_light_is_taken_out_of_a_reply(name: str):
    """P90."""
    usual = {
        "text": "t",
        "refusal": None,
        "finish_reason": "stop",
        "usage": None,
        "model": None,
        "request_id": None,
    }
    seen = Reply(**{**usual, name: f"my key is {CANARY}"})
    assert getattr(redactor.seen(seen), name) == f"my key is {REDACTED}"


def test_keys_of_a_foreign_body_are_cleaned_too():
    seen = Failure(kind="malformed", message="", keys=("output", CANARY))
    assert redactor.seen(seen).keys == ("output", REDACTED)


def test_what_holds_no_secret_is_left_as_it_is():
    seen = Reply(text="abc", refusal=None, finish_reason="stop", usage=None, model="m", request_id="r")
    assert redactor.seen(seen) is seen
    assert redactor.text(html.escape("plain & simple")) == "plain &amp; simple"


def test_texts_too_short_to_be_told_apart_are_left_alone():
    assert redactor.text("abc abcdef") == "abc abcdef"


def test_nothing_tells_what_the_secrets_are():
    assert CANARY not in repr(redactor)
    assert "sk-" not in repr(redactor)


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=40),
    st.binary(max_size=7),
)
def test_any_key_is_taken_out_of_any_base64(key: str, before: bytes):
    encoded = base64.b64encode(before + key.encode() + b"tail").decode()
    assert REDACTED in Redactor([key]).text(encoded)
