"""Take secrets out of whatever comes back from outside, in each form they may come in."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import quote, quote_plus

from airflow_provider_llmbatch.engine.exchange import Failure, Reply

#: What stands in a secret's place.
REDACTED = "***"
#: Shorter strings would blot out ordinary text.
SHORTEST = 5

_REPLY_TEXTS = ("text", "refusal", "reasoning", "model", "request_id", "finish_reason")
_FAILURE_TEXTS = ("message", "code", "type", "param", "request_id")


class Redactor:
    """
    Knows some secrets and replaces them: as they are, URL-encoded, JSON-escaped, in base64.

    :param secrets: texts that must not appear anywhere; shorter ones than :data:`SHORTEST` are ignored.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._forms: list[str] = []
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Take out these from now on, too."""
        forms = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
        self._forms = sorted({*self._forms, *forms}, key=len, reverse=True)
        self._bytes = [form.encode() for form in self._forms]

    def __repr__(self) -> str:
        """Tell how many forms are known, never one of them."""
        return f"Redactor({len(self._forms)} forms)"

    def text(self, text: str) -> str:
        """Return ``text`` without the secrets."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, REDACTED)
        return text

    def seen(self, seen: Reply | Failure) -> Reply | Failure:
        """Return a decoded reply or failure without the secrets that only decoding brought to light."""
        names = _REPLY_TEXTS if isinstance(seen, Reply) else _FAILURE_TEXTS
        texts = {name: text for name in names if (text := getattr(seen, name))}
        clean: dict[str, Any] = {n: shown for n, text in texts.items() if (shown := self.text(text)) != text}
        if isinstance(seen, Failure) and seen.keys:
            clean["keys"] = tuple(self.text(key) for key in seen.keys)
        return replace(seen, **clean) if clean else seen

    def body(self, body: bytes) -> bytes:
        """Return ``body`` without the secrets."""
        for form in self._bytes:
            if form in body:
                body = body.replace(form, REDACTED.encode())
        return body


def _forms(secret: str) -> Iterable[str]:
    yield secret
    for quoted in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield quoted
        yield re.sub("%..", lambda code: code[0].lower(), quoted)
    escaped = json.dumps(secret)[1:-1]
    yield escaped
    yield escaped.replace("/", "\\/")
    raw = secret.encode()
    # Inside a longer encoded text a secret starts at one of three places of a base64 group; the
    # characters at its edges mix with the neighbours, the core between them does not.
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            encoded = encode(b"\0" * shift + raw).decode().rstrip("=")
            whole_groups = (len(raw) + shift) * 8 // 6
            core = encoded[(shift * 8 + 5) // 6 : whole_groups]
            if len(core) >= SHORTEST:
                yield core
