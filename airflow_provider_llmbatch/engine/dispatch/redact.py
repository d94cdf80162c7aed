"""Take secrets out of whatever comes back from outside, in each form they may come in."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import quote, quote_plus

from airflow_provider_llmbatch.engine.exchange import Failure, Reply

#: What stands in a secret's place.
REDACTED = "***"
#: Shorter strings would blot out ordinary text.
SHORTEST = 5


class Redactor:
    """
    Knows some secrets and replaces them: as they are, URL-encoded, JSON-escaped, in base64.

    :param secrets: texts that must not appear anywhere; shorter ones than :data:`SHORTEST` are ignored.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
        self._forms = sorted(forms, key=len, reverse=True)
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
        if isinstance(seen, Failure):
            return replace(seen, message=self.text(seen.message))
        if any(
            form in part for part in (seen.text, seen.refusal, seen.reasoning) if part for form in self._forms
        ):
            return replace(
                seen,
                text=seen.text and self.text(seen.text),
                refusal=seen.refusal and self.text(seen.refusal),
                reasoning=seen.reasoning and self.text(seen.reasoning),
            )
        return seen

    def body(self, body: bytes) -> bytes:
        """Return ``body`` without the secrets."""
        for form in self._bytes:
            if form in body:
                body = body.replace(form, REDACTED.encode())
        return body


def _forms(secret: str) -> Iterable[str]:
    yield secret
    yield quote(secret, safe="")
    yield quote(secret)
    yield quote_plus(secret)
    yield secret.replace("/", "\\/")
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
