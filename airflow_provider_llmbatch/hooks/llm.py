"""The hook: from a connection of Airflow to the engine's settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.hooks.tokens import Token, fresh_token

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_llmbatch.engine.connection import ConnectionSettings


class LLMBatchHook(BaseHook):
    """
    Read a connection to an OpenAI-compatible service.

    Connections of the types ``openai`` and ``pydanticai`` are read as well, as they stand.

    :param llm_conn_id: id of the connection.
    """

    conn_name_attr = "llm_conn_id"
    default_conn_name = "llmbatch_default"
    conn_type = "llmbatch"
    hook_name = "LLM (OpenAI-compatible)"

    def __init__(self, llm_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.llm_conn_id = llm_conn_id

    def settings(self) -> ConnectionSettings:
        """
        Read the connection afresh, and have its secrets masked in all logs.

        From within an event loop call it through :func:`asyncio.to_thread`.

        :raises ConfigurationError: when the connection cannot be used, with the remedy.
        """
        from airflow_provider_llmbatch.engine.connection import parse

        connection = self.get_connection(self.llm_conn_id)
        extra = _extra(connection)
        _refuse_unread_parts(connection)
        token = _token(self.llm_conn_id, connection.password, extra)
        settings = parse(
            self.llm_conn_id,
            host=connection.host,
            password=token.text,
            expires_at=token.expires_at,
            extra=extra,
            conn_type=connection.conn_type,
        )
        for text in settings.secrets():
            mask_secret(text)
        if settings.unknown:
            self.log.warning(
                "Connection %r has extra fields that nothing reads: %s",
                self.llm_conn_id,
                ", ".join(settings.unknown),
            )
        return settings

    def get_conn(self) -> ConnectionSettings:
        """Return :meth:`settings`; there is no connection to keep open."""
        return self.settings()

    def test_connection(self) -> tuple[bool, str]:
        """Ask the service for its models, and say in words what came of it."""
        from airflow_provider_llmbatch.hooks.probe import probe

        try:
            settings = self.settings()
        except ConfigurationError as error:
            return False, str(error)
        return probe(settings)


def _token(conn_id: str, password: str | None, extra: Any) -> Token:
    """Return the key: the password, or a fresh one of the provider that the connection names."""
    from airflow_provider_llmbatch.settings import load_settings

    name = extra.get("token_provider") if isinstance(extra, dict) else None
    if not name:
        return Token(password or "", None)
    if password:
        raise ConfigurationError(
            f"Connection {conn_id!r} has both a password and a token_provider; leave one of them empty."
        )
    token = fresh_token(str(name), conn_id, load_settings().token_providers)
    mask_secret(token.text)
    return token


def _extra(connection: Connection) -> Any:
    """Decode the extra fields; Airflow's own reading makes broken ones empty, and with them the limits."""
    try:
        extra = json.loads(connection.extra) if connection.extra else {}
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"Connection {connection.conn_id!r}: extra is no JSON from line {error.lineno}, column "
            f"{error.colno} on; mend it, or leave it empty."
        ) from None
    mask_secret(extra)
    return extra


def _refuse_unread_parts(connection: Connection) -> None:
    """Refuse what the base URL should hold: a port that is not read would send keys elsewhere."""
    if connection.conn_type != LLMBatchHook.conn_type:
        return
    for part in ("port", "schema", "login"):
        if value := getattr(connection, part):
            shown = "set" if part == "login" else repr(value)
            raise ConfigurationError(
                f"Connection {connection.conn_id!r}: {part} is {shown}, and is not read; write the whole "
                "base URL into host, such as http://localhost:8000/v1, and leave this field empty."
            )
