"""All checks in order; one that breaks is a finding like any other."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence

from airflow_provider_llmbatch.cli import installation, services, stores
from airflow_provider_llmbatch.cli.findings import Finding, of_error, without
from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.hooks.llm import LLMBatchHook
from airflow_provider_llmbatch.settings import Settings, load_settings


def examine(conn_ids: Sequence[str] = (), *, call: bool = False) -> list[Finding]:
    """
    Look at everything, as this machine sees it.

    :param conn_ids: connections to look at; the default one when none is named.
    :param call: send a chat call with each key, which is charged.
    """
    secrets: set[str] = set()
    return without(secrets, list(_findings(conn_ids or (LLMBatchHook.default_conn_name,), call, secrets)))


def _findings(conn_ids: Sequence[str], call: bool, secrets: set[str]) -> Iterator[Finding]:
    yield from _kept("versions", installation.check_versions)
    settings: Settings | None = None
    try:
        settings = load_settings()
        yield Finding(level="ok", what="settings", found="[llmbatch] can be read")
    except ConfigurationError as error:
        yield of_error("settings", error)
    for conn_id in dict.fromkeys(conn_ids):

        def connection(conn_id: str = conn_id) -> Iterable[Finding]:
            return services.check_connection(conn_id, settings, call=call, secrets=secrets)

        yield from _kept(f"connection {conn_id}", connection)
    if settings is not None:
        yield from _of_settings(settings, secrets)
    yield from _kept("vocabulary", installation.check_vocabularies)


def _of_settings(settings: Settings, secrets: set[str]) -> Iterator[Finding]:
    yield from _kept("state", lambda: stores.check_state(settings, secrets=secrets))
    yield from _kept("parked", lambda: stores.check_parked(settings))
    yield from _kept("storage", lambda: stores.check_storage(settings))
    yield from _kept("queues", lambda: installation.check_queues(settings))
    yield from _kept("prompts", lambda: installation.check_prompts(settings))
    yield from _kept("prices", lambda: installation.check_prices(settings))


def _kept(what: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield what a check finds, and that it broke if it does: the others are wanted all the same."""
    try:
        yield from check()
    # what breaks here is not foreseen; its text could hold anything, so only its kind and place are told
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        yield Finding(
            level="fail",
            what=what,
            found=f"could not be looked at: {type(error).__name__} in {last.name}, line {last.lineno}",
            remedy="look at it by hand, and report this line",
        )
