"""
The values that a connection comes down to.

No secret is in a ``repr`` of anything here, nor in :attr:`ConnectionSettings.base_url`; addresses and
headers that hold secrets are put together only when a call is made.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Literal
from urllib.parse import quote, unquote, urlencode

from airflow_provider_llmbatch.engine.connection.secret import Secret

Counts = Literal["reserved", "used"]
#: How a service is asked for replies that follow a schema; only the first is sure to show it to the model.
ResponseFormat = Literal["json_schema", "json_object_schema", "json_object", "none"]

#: Which requests may be answered by an earlier answer when the service throttles them.
CacheOnThrottle = Literal["never", "unsampled", "always"]

#: Seconds of the rate that may be sent at once after a pause.
BURST_SECONDS = 5.0
#: Seconds a granted request may take to arrive at the service.
ARRIVAL_SLACK_S = 2.0
#: Seconds of the window that the limits "per minute" are counted in.
WINDOW_S = 60.0
#: Seconds for a whole call, and for its connection.
TIMEOUT_S = 600.0
CONNECT_TIMEOUT_S = 10.0

_WITHOUT_KEY = "no-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A key and the account that its use is limited on."""

    #: given in the connection, else derived from the key; safe to log
    id: str
    #: keys with the same account share its limits, also across connections
    account: str
    #: None when the endpoint takes calls without a key
    key: Secret | None = None

    @classmethod
    def of(
        cls, key: Secret | None, *, host: str, id: str | None = None, account: str | None = None
    ) -> Credential:
        """Fill in what is not given: the id from the key, the account from the id."""
        # Without a key nothing but the host tells one service from another.
        derived = key.digest() if key else f"{_WITHOUT_KEY}@{host}"
        return cls(id=id or derived, account=account or id or derived, key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRule:
    """
    The limits of one group of models on one account.

    All models that a rule covers draw from the same limits. None means not limited.
    """

    #: pattern of account names, as in ``fnmatch``
    account: str = "*"
    #: patterns of model names, as in ``fnmatch``
    models: tuple[str, ...] = ("*",)
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    requests_per_day: int | None = None
    tokens_per_day: int | None = None
    #: calls open at the same time, over all workers
    max_in_flight: int | None = None
    #: seconds of the rate that may be sent at once after a pause
    burst_seconds: float = BURST_SECONDS
    #: whether the service counts the tokens a request reserves or those it used
    counts: Counts = "reserved"
    #: seconds a granted request may take to arrive
    arrival_slack: float = ARRIVAL_SLACK_S
    #: seconds in which the amounts "per minute" may be used; other than 60 only against a simulator
    window_s: float = WINDOW_S

    @property
    def group(self) -> str:
        """Name of the model group, part of the limit's key."""
        return ",".join(self.models)

    def covers(self, account: str, model: str) -> bool:
        """Whether the rule holds for calls of ``model`` on ``account``."""
        return self.covers_account(account) and any(fnmatchcase(model, m) for m in self.models)

    def covers_account(self, account: str) -> bool:
        """Whether the rule holds for calls of some model on ``account``."""
        return fnmatchcase(account, self.account)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What may be spent on a connection in a run, a day or a month; exactly one of the amounts is set."""

    name: str
    per: Literal["run", "day", "month"]
    usd: Decimal | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """An endpoint and what it takes to call it."""

    conn_id: str
    #: scheme, host and path, without login and query; safe to log
    base_url: str
    credentials: tuple[Credential, ...]
    #: in the order in which they are tried; the last one covers everything
    limits: tuple[LimitRule, ...]
    #: all of them are kept, beside the one of the task
    budgets: tuple[Budget, ...] = ()
    #: protocol spoken at the endpoint
    api: Literal["chat_completions"] = "chat_completions"
    #: form in which the endpoint takes a schema
    response_format: ResponseFormat = "json_schema"
    #: whether a throttled request takes the answer that another has had; ``unsampled`` leaves those out that
    #: ask for variety
    cache_on_throttle: CacheOnThrottle = "never"
    #: model of calls that name none
    model: str | None = None
    azure_deployment: str | None = None
    api_version: str | None = None
    #: tokens that fit the model, when no table knows
    context_window: int | None = None
    #: encoding that counts the model's tokens, when no table knows
    encoding: str | None = None
    #: US dollars per million tokens by model, for ``input``, ``cached_input`` and ``output``
    prices: Mapping[str, Mapping[str, Decimal]] = field(default_factory=dict)
    timeout_s: float = TIMEOUT_S
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    #: Unix seconds at which the first key expires; None when it does not
    expires_at: float | None = None
    #: most calls that one process keeps open, whatever the limits allow
    concurrency: int | None = None
    #: file with the certificates to trust, in PEM format
    ca_file: str | None = None
    #: extra fields that nobody reads, for a warning
    unknown: tuple[str, ...] = ()
    proxy: Secret | None = None
    #: ``name:password`` of the base URL
    login: Secret | None = None
    #: query of the base URL as it was written, sent with every call
    query: Secret | None = None
    #: headers sent with every call
    extra_headers: tuple[tuple[str, Secret], ...] = ()

    def url(self, path: str = "chat/completions") -> str:
        """
        Return the address of ``path`` at the endpoint, query and all.

        It can hold secrets: it is for the wire, :attr:`base_url` is for people.
        """
        base = self.base_url
        query = [self.query.reveal()] if self.query else []
        if self.azure_deployment:
            deployment = quote(self.azure_deployment, safe="")
            base += "/openai" if path == "models" else f"/openai/deployments/{deployment}"
            query.append(urlencode({"api-version": self.api_version}))
        return f"{base}/{path}" + ("?" + "&".join(query) if query else "")

    def headers(self, credential: Credential) -> dict[str, str]:
        """Return the headers that ``credential`` and the connection add to a call; they hold secrets."""
        headers = {name: value.reveal() for name, value in self.extra_headers}
        if self.login:
            headers["Authorization"] = f"Basic {_basic(self.login)}"
        if credential.key and self.azure_deployment:
            headers["api-key"] = credential.key.reveal()
        elif credential.key:
            headers["Authorization"] = f"Bearer {credential.key.reveal()}"
        return headers

    def limit(self, account: str, model: str) -> LimitRule:
        """Return the first rule that covers ``model`` on ``account``."""
        return next(rule for rule in self.limits if rule.covers(account, model))

    def secrets(self) -> tuple[str, ...]:
        """Return every text that must not be seen, in the spellings in which it could be."""
        held = [c.key for c in self.credentials if c.key]
        held += [s for s in (self.proxy, self.login) if s]
        held += [value for name, value in self.extra_headers if _is_sensitive(name)]
        texts = [form for secret in held for form in secret.forms()]
        if self.login:
            texts.append(self.login.reveal().partition(":")[2])
        if self.query:
            written = [pair.partition("=")[2] for pair in self.query.reveal().split("&")]
            texts += [form for value in written for form in (value, *Secret(unquote(value)).forms())]
        return tuple(dict.fromkeys(t for t in texts if t))


def _basic(login: Secret) -> str:
    return base64.b64encode(login.reveal().encode()).decode()


def _is_sensitive(header: str) -> bool:
    words = ("auth", "key", "token", "secret", "cookie", "credential", "password")
    return any(word in header.lower() for word in words)
