"""What to say about a connection that cannot be used: which field, which value, what instead."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from airflow_provider_llmbatch.engine.connection.fields import (
    BudgetEntry,
    CredentialEntry,
    Extra,
    LimitEntry,
    PriceEntry,
)
from airflow_provider_llmbatch.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

#: Values in these fields are never shown.
_HIDDEN = frozenset({"credentials", "headers", "proxy"})
_SHOWN_CHARACTERS = 60

_AMOUNT = "a whole number from 1, or leave it out"
_SECONDS = "a number of seconds above 0"
_TEXT = "a text that is not empty, or leave it out"
_DOLLARS = 'US dollars per million tokens as a decimal number, such as "0.15"'
_REMEDIES = {
    "api": "'chat_completions', the only protocol built so far, or leave it out",
    "api_key": "the key as the service shows it, without quotes and line ends",
    "api_version": "a version such as '2024-10-21'",
    "budgets": 'a list such as [{"name": "team", "usd": 50, "per": "day"}]',
    "per": "'run', 'day' or 'month'",
    "arrival_slack": "a number of seconds from 0",
    "cache_on_throttle": "'never', 'unsampled' or 'always'",
    "ca_file": "the path of a PEM file",
    "counts": "'reserved' or 'used'",
    "credentials": 'a list such as [{"api_key": "…", "account": "…"}]',
    "encoding": "the name of an encoding, such as 'o200k_base'",
    "headers": 'an object of texts, such as {"X-Team": "research"}',
    "limits": 'a list such as [{"models": ["gpt-4o*"], "requests_per_minute": 500}]',
    "models": 'a list of model names or patterns, such as ["gpt-4o*"]',
    "prices": 'an object such as {"my-model": {"input": "0.15", "output": "0.60"}}',
    "token_provider": "a name of [llmbatch] token_providers, or leave it out",
    "proxy": "the URL of an HTTP proxy",
    "response_format": "'json_schema', 'json_object_schema', 'json_object' or 'none'",
    **dict.fromkeys(("cached_input", "input", "output"), _DOLLARS),
    **dict.fromkeys(("burst_seconds", "connect_timeout_s", "timeout_s", "window_s"), _SECONDS),
    **dict.fromkeys(("account", "azure_deployment", "name", "credential_id", "id", "model"), _TEXT),
}
_KNOWN_IN: dict[str, type[BaseModel]] = {
    "budgets": BudgetEntry,
    "credentials": CredentialEntry,
    "limits": LimitEntry,
    "prices": PriceEntry,
}


def refusal(conn_id: str, field: str, problem: str) -> ConfigurationError:
    """Return the error for one field; ``problem`` goes on after its name and ends with the remedy."""
    return ConfigurationError(f"Connection {conn_id!r}: {field} {problem}.")


def refusal_of(conn_id: str, error: ValidationError, *, hide: Collection[str]) -> ConfigurationError:
    """
    Return the error for extra fields that have the wrong type or value.

    :param hide: texts that must not be shown, wherever they were put.
    """
    found = " ".join(map(_sentence, error.errors(include_url=False, include_context=False)))
    for text in hide:
        found = found.replace(text, "***")
    return ConfigurationError(f"Connection {conn_id!r}: {found}")


def misspelled(name: str, known: Collection[str], *, likeness: float = 0.8) -> str | None:
    """Return the name that was probably meant, if there is one."""
    return next(iter(get_close_matches(name.lower(), known, n=1, cutoff=likeness)), None)


def _sentence(error: ErrorDetails) -> str:
    path = [str(part) for part in error["loc"]]
    where = f"extra field {'.'.join(path)}"
    if error["type"] == "extra_forbidden":
        return f"{where} is not known; {_known_beside(path)}."
    names = [part for part in path if not part.isdigit()]
    remedy = _REMEDIES.get(names[-1]) or (_REMEDIES[names[0]] if len(names) > 1 else _AMOUNT)
    if error["type"] == "missing":
        return f"{where} is missing; give {remedy}."
    reason = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    value = _shown(error["input"], hidden=path[0] in _HIDDEN)
    return f"{where} {value}: it {reason}; give {remedy}."


def _known_beside(path: list[str]) -> str:
    known = sorted(_KNOWN_IN[path[0]].model_fields)
    meant = misspelled(path[-1], known, likeness=0.6)
    return f"did you mean {meant}?" if meant else f"the fields here are {', '.join(known)}"


def _shown(value: Any, *, hidden: bool) -> str:
    if hidden or isinstance(value, dict | list):
        return f"is not usable (a {type(value).__name__}, not shown)"
    text = repr(value)
    return f"is {text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + '…'}"


FIELDS: Collection[str] = frozenset(Extra.model_fields)
