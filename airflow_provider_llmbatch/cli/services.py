"""Checks of a connection: can it be read, is somebody there, and do both sides speak of the same limits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_provider_llmbatch.cli.findings import Finding, of_error, of_words
from airflow_provider_llmbatch.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.connection import ConnectionSettings
    from airflow_provider_llmbatch.engine.state.protocols import Told
    from airflow_provider_llmbatch.settings import Settings

_UNITS = {"requests": "requests_per_minute", "tokens": "tokens_per_minute"}


def check_connection(
    conn_id: str, settings: Settings | None, *, call: bool, secrets: set[str]
) -> Iterator[Finding]:
    """
    Look at a connection and the service behind it.

    :param settings: of the installation; None when they cannot be read.
    :param call: send a chat call with each key, which is charged.
    :param secrets: gets those of the connection, so that nothing shows them.
    """
    from airflow.sdk.exceptions import AirflowException

    from airflow_provider_llmbatch.hooks.llm import LLMBatchHook

    what = f"connection {conn_id}"
    try:
        connection = LLMBatchHook(conn_id).settings()
    except ConfigurationError as error:
        yield of_error(what, error)
        return
    except AirflowException as error:
        yield Finding(
            level="fail",
            what=what,
            found=f"cannot be read: {error}",
            remedy="make it, of the type llmbatch, or name yours with --conn-id",
        )
        return
    secrets.update(connection.secrets())
    yield from _parsed(what, connection)
    yield from _service(conn_id, connection, call)
    yield from _tokens(conn_id, connection, settings)


def _parsed(what: str, connection: ConnectionSettings) -> Iterator[Finding]:
    keys = sum(credential.key is not None for credential in connection.credentials)
    found = f"{connection.base_url}, {keys} keys, model {connection.model or 'named by tasks'}"
    yield Finding(level="ok", what=what, found=found)
    if connection.unknown:
        yield Finding(
            level="warn",
            what=what,
            found=f"has extra fields that nothing reads: {', '.join(connection.unknown)}",
            remedy="correct their names, or remove them",
        )


def _service(conn_id: str, connection: ConnectionSettings, call: bool) -> Iterator[Finding]:
    from airflow_provider_llmbatch.hooks.probe import look

    model = connection.model or connection.azure_deployment or ""
    seen = look(connection, call=model if call else "")
    yield of_words(f"endpoint {conn_id}", seen.words, seen.level)
    if call and not model:
        yield Finding(
            level="unknown",
            what=f"limits {conn_id}",
            found="no call was sent, as the connection names no model",
            remedy="set model in the connection",
        )
    for account, told in seen.told.items():
        yield from _limits(conn_id, connection, model, account, told)


def _limits(
    conn_id: str, connection: ConnectionSettings, model: str, account: str, told: tuple[Told, ...]
) -> Iterator[Finding]:
    """Hold the limits of the connection against those that the service tells."""
    what = f"limits {conn_id}"
    rule = connection.limit(account, model)
    of_service = {one.unit: one.limit for one in told if one.limit is not None}
    for unit, field in _UNITS.items():
        ours: int | None = getattr(rule, field)
        said = next((limit for kind, limit in of_service.items() if kind == unit), None)
        shown = f"{field} is {'not set' if ours is None else f'{ours:,}'}"
        if said is None:
            hint = "" if ours is not None else "set it to what your account has"
            yield Finding(
                level="warn" if ours is None else "unknown",
                what=what,
                found=f"{shown}; the service did not say its limit of {unit}",
                remedy=hint or "compare it with your account's page, or ask with --call",
            )
        elif ours is None or ours > said:
            yield Finding(
                level="warn",
                what=what,
                found=f"{shown}, the service says {said:,} {unit} for account {account}",
                remedy=f"set it to {said}, if that is its limit a minute: more only brings refusals",
            )
        else:
            yield Finding(
                level="ok",
                what=what,
                found=f"{shown}, {ours / said:.0%} of the {said:,} that the service says",
            )


def _tokens(conn_id: str, connection: ConnectionSettings, settings: Settings | None) -> Iterator[Finding]:
    """Look whether tokens of the model are counted exactly, and priced."""
    from airflow_provider_llmbatch.engine.items import Usage
    from airflow_provider_llmbatch.engine.tokens.count import TokenCounter
    from airflow_provider_llmbatch.engine.tokens.encodings import DEFAULT_ENCODING
    from airflow_provider_llmbatch.engine.tokens.price import PriceTable, read_prices

    what, model = f"tokens {conn_id}", connection.model or connection.azure_deployment
    if model is None:
        yield Finding(level="unknown", what=what, found="the connection names no model, so tasks do")
        return
    notes: list[str] = []
    default = settings.default_encoding if settings is not None else DEFAULT_ENCODING
    try:
        counter = TokenCounter.for_model(
            model, encoding=connection.encoding, default=default, on_unknown=notes.append
        )
        own = read_prices(settings.prices_path) if settings is not None and settings.prices_path else {}
        prices = PriceTable({**connection.prices, **own}, api_url=connection.base_url, now=time.time)
    except ConfigurationError as error:
        yield of_error(what, error)
        return
    if notes:
        yield of_words(what, notes[0], "warn")
    else:
        yield Finding(level="ok", what=what, found=f"tokens of {model} are counted with {counter.encoding}")
    if prices.cost(model, Usage()).unpriced:
        yield Finding(
            level="warn",
            what=what,
            found=f"the price of {model} is not known: money is not counted, and budgets in usd are refused",
            remedy="add it to prices in the connection, or to [llmbatch] prices_path",
        )
