"""Keys that expire: a function of the installation gives a fresh one whenever a connection is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import NamedTuple

from airflow_provider_llmbatch.errors import ConfigurationError


class Token(NamedTuple):
    """A key, and when it expires (Unix seconds; None when that is not known)."""

    text: str
    expires_at: float | None


#: Takes the id of a connection; returns a key, or a key and the Unix seconds at which it expires.
Provider = Callable[[str], "str | tuple[str, float]"]


def fresh_token(name: str, conn_id: str, providers: Mapping[str, str]) -> Token:
    """
    Ask a provider for a key.

    :param name: the provider's name in ``[llmbatch] token_providers``, as the connection gives it. Only what
        the installation lists is imported: who may edit connections may not run code by that.
    :raises ConfigurationError: for an unknown provider, or one that fails; its own words are left out, since
        they may hold a secret.
    """
    if name not in providers:
        known = ", ".join(sorted(providers)) or "none"
        raise ConfigurationError(
            f"Connection {conn_id!r}: extra field token_provider is {name!r}, which [llmbatch] "
            f"token_providers does not list; it lists {known}."
        )
    try:
        module, _, function = providers[name].rpartition(".")
        provider: Provider = getattr(import_module(module), function)
        given = provider(conn_id)
    except Exception as error:
        raise ConfigurationError(
            f"Token provider {name!r} ({providers[name]}) failed for connection {conn_id!r} with "
            f"{type(error).__name__}; try it in a shell on this worker."
        ) from None
    token = Token(given, None) if isinstance(given, str) else Token(*given)
    if not str(token.text or "").strip():
        raise ConfigurationError(f"Token provider {name!r} gave no text for connection {conn_id!r}.")
    if token.expires_at is not None and token.expires_at <= time.time():
        raise ConfigurationError(f"Token provider {name!r} gave a key that is expired already.")
    return token
