"""The base URL, taken apart into what may be shown and what may not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from airflow_provider_llmbatch.engine.connection.secret import Secret

_EXAMPLE = "such as https://api.openai.com/v1"
_NOT_IN_A_URL = re.compile(r"[\s\x00-\x1f\x7f\\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A base URL in three parts."""

    #: scheme, host, port and path, without a slash at the end
    base_url: str
    #: ``name:password``
    login: Secret | None = None
    #: as it was written
    query: Secret | None = None


def read_address(text: str) -> Address:
    """
    Take a base URL apart; nothing is added to it, and only slashes at its end are dropped.

    :raises ValueError: when it is not the base URL of an HTTP service; the message holds no secret.
    """
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"is {_shown(text)!r}, which is no URL; give one {_EXAMPLE}") from error
    problem = _problem(text, parts.scheme, host, port, parts.fragment)
    if problem:
        raise ValueError(f"is {_shown(text)!r}, {problem}")
    userinfo, _, authority = parts.netloc.rpartition("@")
    return Address(
        base_url=f"{parts.scheme}://{authority}{parts.path}".rstrip("/"),
        login=Secret(unquote(userinfo)) if userinfo else None,
        query=Secret(parts.query) if parts.query else None,
    )


def _problem(text: str, scheme: str, host: str | None, port: int | None, fragment: str) -> str:
    if _NOT_IN_A_URL.search(text):
        return "with white space or a backslash in it; remove that"
    if "://" not in text:
        return f"without a scheme; write it out, {_EXAMPLE}"
    if scheme not in ("http", "https"):
        return f"whose scheme {scheme!r} is not spoken here; use https or http"
    if not host or port == 0:
        return f"without a usable host and port; give a base URL {_EXAMPLE}"
    if fragment:
        return "with a fragment after '#', which no server sees; remove it"
    if _shown(text).rstrip("/").endswith("/completions"):
        return "which is the address of one call; leave out /chat/completions"
    return ""


def _shown(text: str) -> str:
    before_query = re.split(r"[?#]", text, maxsplit=1)[0]
    scheme, separator, rest = before_query.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
