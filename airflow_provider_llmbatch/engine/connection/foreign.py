"""Connections of types that other providers own, brought into the form of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Where the OpenAI library calls when it is told nothing.
OPENAI_URL = "https://api.openai.com/v1"

_OPENAI_HEADERS = {"organization": "OpenAI-Organization", "project": "OpenAI-Project"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """A connection in plain values, with the extra fields named as ours are."""

    host: str
    password: str
    extra: Mapping[str, Any]
    #: extra fields that mean nothing here
    unread: tuple[str, ...] = ()


def from_openai(host: str, password: str, extra: Mapping[str, Any]) -> Plain:
    """
    Read a connection of the OpenAI provider: what stands in ``openai_client_kwargs`` goes first.

    :raises ValueError: for a way to log in that is not a key.
    """
    ours = {k: v for k, v in extra.items() if k not in ("openai_client_kwargs", "auth_type")}
    if (auth_type := extra.get("auth_type", "api_key")) != "api_key":
        raise ValueError(f"auth_type is {auth_type!r}, which is not supported; use an API key")
    client = extra.get("openai_client_kwargs") or {}
    if not isinstance(client, Mapping):
        raise ValueError("openai_client_kwargs is no object; give one, or leave it out")
    rest = dict(client)
    base_url, api_key = rest.pop("base_url", None), rest.pop("api_key", None)
    headers = dict(rest.pop("default_headers", None) or {})
    headers |= {header: rest.pop(key) for key, header in _OPENAI_HEADERS.items() if rest.get(key)}
    if headers:
        ours["headers"] = {**headers, **ours.get("headers", {})}
    if isinstance(rest.get("timeout"), int | float):
        ours.setdefault("timeout_s", rest.pop("timeout"))
    return Plain(
        host=base_url or host or OPENAI_URL,
        password=api_key or password,
        extra=ours,
        unread=tuple(f"openai_client_kwargs.{key}" for key in sorted(rest)),
    )


def from_pydanticai(host: str, password: str, extra: Mapping[str, Any]) -> Plain:
    """
    Read a connection of the common.ai provider: its model is written ``provider:model``.

    :raises ValueError: when the model's provider has no address that is known here.
    """
    ours = dict(extra)
    provider, colon, model = str(extra.get("model") or "").partition(":")
    if colon:
        ours["model"] = model
    if not host and colon and provider.partition("-")[0] != "openai":
        raise ValueError(
            f"model is of provider {provider!r}, whose address is not known here; set host to its "
            "OpenAI-compatible base URL"
        )
    return Plain(host=host or OPENAI_URL, password=password, extra=ours)
