"""The extra fields of a connection and their types."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from airflow_provider_llmbatch.engine.connection.settings import (
    ARRIVAL_SLACK_S,
    BURST_SECONDS,
    CONNECT_TIMEOUT_S,
    TIMEOUT_S,
    WINDOW_S,
    CacheOnThrottle,
    Counts,
    ResponseFormat,
)

#: Headers that belong to the call itself.
_RESERVED_HEADERS = frozenset({"content-length", "content-type", "host", "transfer-encoding"})
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_PROXY_URL = re.compile(r"https?://\S+")


def _number(value: Any) -> Any:
    """Refuse what the laxer rules of pydantic would turn into a number."""
    if isinstance(value, bool):
        raise ValueError("should be a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("should be a finite number")
    return value


def _json_text(value: Any) -> Any:
    """Read what a connection given as a URI can only hold as text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"should be JSON, and is none from character {error.pos} on") from None


def _key(value: str) -> str:
    if not _VISIBLE.fullmatch(value):
        raise ValueError("is empty, or has white space or other characters in it that no key has")
    return value


def _proxy(value: str) -> str:
    if not _PROXY_URL.fullmatch(value):
        raise ValueError("should be a URL that begins with http:// or https://")
    return value


def _headers(value: Mapping[str, str]) -> Mapping[str, str]:
    for name, text in value.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _RESERVED_HEADERS:
            raise ValueError(f"names {name!r}, which is not a header that can be set")
        if not _PRINTABLE.fullmatch(text):
            raise ValueError(f"has characters other than printable ASCII in the header {name!r}")
    return value


Amount = Annotated[int, BeforeValidator(_number), Field(ge=1)]
Seconds = Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)]
SecondsOrNone = Annotated[float, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)]
Dollars = Annotated[Decimal, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
Key = Annotated[str, AfterValidator(_key)]


class Rates(BaseModel):
    """The amounts of one limit."""

    requests_per_minute: Amount | None = None
    tokens_per_minute: Amount | None = None
    requests_per_day: Amount | None = None
    tokens_per_day: Amount | None = None
    max_in_flight: Amount | None = None


class LimitEntry(Rates):
    """One entry of ``limits``; what it leaves out about counting is taken from the connection."""

    model_config = ConfigDict(extra="forbid")

    account: Text = "*"
    models: Annotated[tuple[Text, ...], Field(min_length=1)] = ("*",)
    burst_seconds: Seconds | None = None
    counts: Counts | None = None
    arrival_slack: SecondsOrNone | None = None
    window_s: Seconds | None = None


class BudgetEntry(BaseModel):
    """One entry of ``budgets``."""

    model_config = ConfigDict(extra="forbid")

    name: Text
    per: Literal["run", "day", "month"]
    usd: Annotated[Decimal, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)] | None = None
    tokens: Amount | None = None

    @model_validator(mode="after")
    def _one_amount(self) -> Self:
        if (self.usd is None) == (self.tokens is None):
            raise ValueError("should have either usd or tokens")
        return self


class CredentialEntry(BaseModel):
    """One entry of ``credentials``."""

    model_config = ConfigDict(extra="forbid")

    api_key: Key
    id: Text | None = None
    account: Text | None = None


class PriceEntry(BaseModel):
    """The price of one model."""

    model_config = ConfigDict(extra="forbid")

    input: Dollars
    output: Dollars
    cached_input: Dollars | None = None


class Extra(Rates):
    """All that a connection can say beside base URL and API key."""

    model_config = ConfigDict(extra="allow")

    api: Literal["chat_completions"] = "chat_completions"
    response_format: ResponseFormat = "json_schema"
    cache_on_throttle: CacheOnThrottle = "never"
    account: Text | None = None
    credential_id: Text | None = None
    token_provider: Text | None = None
    credentials: Annotated[tuple[CredentialEntry, ...], BeforeValidator(_json_text)] = ()
    limits: Annotated[tuple[LimitEntry, ...], BeforeValidator(_json_text)] = ()
    budgets: Annotated[tuple[BudgetEntry, ...], BeforeValidator(_json_text)] = ()
    burst_seconds: Seconds = BURST_SECONDS
    counts: Counts = "reserved"
    arrival_slack: SecondsOrNone = ARRIVAL_SLACK_S
    window_s: Seconds = WINDOW_S
    model: Text | None = None
    azure_deployment: Text | None = None
    api_version: Text | None = None
    context_window: Amount | None = None
    encoding: Text | None = None
    prices: Annotated[dict[str, PriceEntry], BeforeValidator(_json_text)] = Field(default_factory=dict)
    timeout_s: Seconds = TIMEOUT_S
    connect_timeout_s: Seconds = CONNECT_TIMEOUT_S
    concurrency: Amount | None = None
    headers: Annotated[dict[str, str], BeforeValidator(_json_text), AfterValidator(_headers)] = Field(
        default_factory=dict
    )
    proxy: Annotated[str, AfterValidator(_proxy)] | None = None
    ca_file: Text | None = None
