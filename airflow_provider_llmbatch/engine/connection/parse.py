"""From the plain values of a connection to its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from airflow_provider_llmbatch.engine.connection.address import Address, read_address
from airflow_provider_llmbatch.engine.connection.fields import Extra, Key, LimitEntry
from airflow_provider_llmbatch.engine.connection.foreign import Plain, from_openai, from_pydanticai
from airflow_provider_llmbatch.engine.connection.refusal import FIELDS, misspelled, refusal, refusal_of
from airflow_provider_llmbatch.engine.connection.secret import Secret
from airflow_provider_llmbatch.engine.connection.settings import (
    Budget,
    ConnectionSettings,
    Credential,
    LimitRule,
)

CONN_TYPE = "llmbatch"

_FOREIGN = {"openai": from_openai, "pydanticai": from_pydanticai}
_COUNTING = ("burst_seconds", "counts", "arrival_slack", "window_s")
_RATES = ("requests_per_minute", "tokens_per_minute", "requests_per_day", "tokens_per_day", "max_in_flight")
_KEY = TypeAdapter(Key)


def parse(
    conn_id: str,
    *,
    host: str | None,
    password: str | None,
    extra: Mapping[str, Any],
    conn_type: str | None = CONN_TYPE,
    expires_at: float | None = None,
) -> ConnectionSettings:
    """
    Read a connection.

    :param conn_id: the connection's id, for messages.
    :param host: the base URL.
    :param password: the API key; None for an endpoint that asks for none.
    :param extra: the extra fields, decoded.
    :param conn_type: ``llmbatch``, or ``openai`` or ``pydanticai`` as other providers write them.
    :param expires_at: Unix seconds at which the key expires, when it does.
    :raises ConfigurationError: naming the field, its value unless it is a secret, and the remedy.
    """
    plain = _plain(conn_id, conn_type, host or "", password or "", extra)
    fields = _fields(conn_id, plain)
    unknown = _unknown(conn_id, fields, strict=conn_type == CONN_TYPE)
    if not plain.host:
        raise refusal(conn_id, "host", "is empty; set it to the base URL, such as https://api.openai.com/v1")
    try:
        address = read_address(plain.host)
    except ValueError as error:
        raise refusal(conn_id, "host", str(error)) from None
    credentials = _credentials(conn_id, plain, fields, address)
    _check_login(conn_id, fields, address, credentials)
    _check_azure(conn_id, fields, address)
    return ConnectionSettings(
        conn_id=conn_id,
        base_url=address.base_url,
        login=address.login,
        query=address.query,
        expires_at=expires_at,
        credentials=credentials,
        limits=_limits(conn_id, fields, credentials),
        budgets=tuple(Budget(**entry.model_dump()) for entry in fields.budgets),
        api=fields.api,
        response_format=fields.response_format,
        cache_on_throttle=fields.cache_on_throttle,
        model=fields.model,
        azure_deployment=fields.azure_deployment,
        api_version=fields.api_version,
        context_window=fields.context_window,
        encoding=fields.encoding,
        prices={model: price.model_dump(exclude_none=True) for model, price in fields.prices.items()},
        timeout_s=fields.timeout_s,
        connect_timeout_s=fields.connect_timeout_s,
        concurrency=fields.concurrency,
        ca_file=fields.ca_file,
        proxy=Secret(fields.proxy) if fields.proxy else None,
        extra_headers=tuple((name, Secret(value)) for name, value in fields.headers.items()),
        unknown=tuple(sorted((*unknown, *plain.unread))),
    )


def _plain(conn_id: str, conn_type: str | None, host: str, password: str, extra: Mapping[str, Any]) -> Plain:
    if not isinstance(extra, Mapping):
        raise refusal(conn_id, "extra", f"is a {type(extra).__name__}; make it a JSON object")
    if conn_type == CONN_TYPE:
        return Plain(host=host, password=password, extra=extra)
    if conn_type not in _FOREIGN:
        known = ", ".join((CONN_TYPE, *_FOREIGN))
        raise refusal(conn_id, "conn_type", f"is {conn_type!r}; set it to one of {known}")
    try:
        return _FOREIGN[conn_type](host, password, extra)
    except ValueError as error:
        raise refusal(conn_id, "extra field", str(error)) from None


def _fields(conn_id: str, plain: Plain) -> Extra:
    # The form of the web interface stores fields that were left empty.
    given = {name: value for name, value in plain.extra.items() if value is not None and value != ""}
    try:
        return Extra.model_validate(given)
    except ValidationError as error:
        # Its text repeats the values, so it must not be chained.
        raise refusal_of(conn_id, error, hide=[plain.password] if plain.password else []) from None


def _unknown(conn_id: str, fields: Extra, *, strict: bool) -> tuple[str, ...]:
    """Return the fields nobody reads; one that is nearly ours is refused, since a limit may hang on it."""
    unknown = tuple(fields.model_extra or ())
    if strict:
        for name in unknown:
            if meant := misspelled(name, FIELDS):
                raise refusal(conn_id, f"extra field {name}", f"is not known; did you mean {meant}?")
    return unknown


def _credentials(conn_id: str, plain: Plain, fields: Extra, address: Address) -> tuple[Credential, ...]:
    given = [(e.api_key, e.id, e.account) for e in fields.credentials]
    if plain.password:
        try:
            _KEY.validate_python(plain.password)
        except ValidationError as error:
            reason = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise refusal(conn_id, "password", f"{reason}; paste the key again") from None
        # Keys that a provider gives change; the credential and its limits stay.
        id = fields.credential_id or fields.token_provider
        given.insert(0, (plain.password, id, fields.account))
    host = address.base_url.partition("://")[2].partition("/")[0]
    found = tuple(Credential.of(Secret(key), host=host, id=id, account=account) for key, id, account in given)
    for what, values in (("key", [c.key for c in found]), ("id", [c.id for c in found])):
        if len(set(values)) < len(values):
            raise refusal(
                conn_id, "extra field credentials", f"has the same {what} twice; list each one once"
            )
    if found:
        return found
    return (Credential.of(None, host=host, id=fields.credential_id, account=fields.account),)


def _check_login(conn_id: str, fields: Extra, address: Address, credentials: Sequence[Credential]) -> None:
    """Refuse two answers to the question what the Authorization header holds."""
    by_key = credentials[0].key is not None and not fields.azure_deployment
    by_header = any(name.lower() == "authorization" for name in fields.headers)
    if by_key + by_header + (address.login is not None) > 1:
        raise refusal(
            conn_id,
            "host, password and headers",
            "say more than once how to authorize; keep the API key, the login in the URL or the header",
        )


def _check_azure(conn_id: str, fields: Extra, address: Address) -> None:
    if fields.azure_deployment and not fields.api_version:
        raise refusal(
            conn_id, "extra field api_version", "is missing; azure_deployment needs it, such as 2024-10-21"
        )
    if fields.api_version and not fields.azure_deployment:
        raise refusal(
            conn_id,
            "extra field azure_deployment",
            "is missing; api_version is read with it only, so name the deployment or remove api_version",
        )
    if fields.azure_deployment and "/openai" in address.base_url.partition("://")[2]:
        raise refusal(
            conn_id,
            "host",
            f"is {address.base_url!r}; with azure_deployment it ends before /openai: https://NAME.openai.azure.com",
        )


def _limits(conn_id: str, fields: Extra, credentials: Sequence[Credential]) -> tuple[LimitRule, ...]:
    counting = {name: getattr(fields, name) for name in _COUNTING}
    rules = [_rule(entry, counting) for entry in fields.limits]
    accounts = sorted({c.account for c in credentials})
    for rule in rules:
        if not any(rule.covers_account(account) for account in accounts):
            raise refusal(
                conn_id,
                "extra field limits",
                f"names the account {rule.account!r}, which no credential has; the accounts are {accounts}",
            )
    return (*rules, LimitRule(**{name: getattr(fields, name) for name in _RATES}, **counting))


def _rule(entry: LimitEntry, counting: Mapping[str, Any]) -> LimitRule:
    given = entry.model_dump(exclude_none=True)
    return LimitRule(**{**counting, **given})
