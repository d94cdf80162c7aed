"""What tokens cost: the user's own table first, then the prices that ``genai_prices`` carries. Offline."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_llmbatch.engine.items import Cost, Usage
from airflow_provider_llmbatch.errors import ConfigurationError

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

_KEYS = ("input", "cached_input", "output")
_UNPRICED = Cost(unpriced=True)

#: Prices of ``genai_prices`` that make a chat completion cost more than its input and output rates say.
_EXTRA_RULES = ("requests_kcount", "output_reasoning_mtok")


@dataclass(frozen=True, slots=True)
class Rates:
    """US dollars per million tokens."""

    input: Decimal
    cached_input: Decimal
    output: Decimal

    def cost(self, usage: Usage) -> Cost:
        """Return the exact price; a cached token is billed once, at its own rate."""
        cached = min(usage.cached, usage.prompt)
        micro = (
            (usage.prompt - cached) * self.input + cached * self.cached_input + usage.completion * self.output
        )
        return Cost(usd=micro.scaleb(-6).normalize())


@dataclass(frozen=True, slots=True)
class _Tiers:
    """Rates that depend on the size of the prompt: each start is exceeded before the next rates hold."""

    starts: tuple[int, ...]
    rates: tuple[Rates, ...]

    def cost(self, usage: Usage) -> Cost:
        return self.rates[bisect.bisect_left(self.starts, usage.prompt)].cost(usage)


_Pricing = Callable[[Usage], Cost]


class PriceTable:
    """
    Prices by model.

    :param own: US dollars per million tokens by model, with the keys ``input``, ``output`` and
        ``cached_input`` (the input price when left out); they stand over all others.
    :param api_url: address of the service, by which its own prices are found where they differ.
    :param now: clock in Unix seconds, for prices that depend on the hour.
    :raises ConfigurationError: for a price that is no number from 0.
    """

    def __init__(
        self,
        own: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        api_url: str | None = None,
        now: Callable[[], float],
    ) -> None:
        self._api_url = api_url
        self._now = now
        self._pricing: dict[str, _Pricing | None] = {}
        self._models: dict[str, ModelInfo | None] = {}
        for model, rates in (own or {}).items():
            self._pricing[model] = _own_rates(model, rates).cost

    def cost(self, model: str, usage: Usage) -> Cost:
        """Return what the tokens of one call cost; ``unpriced`` when no price is known."""
        if model not in self._pricing:
            self._pricing[model] = self._published(model)
        pricing = self._pricing[model]
        return pricing(usage) if pricing else _UNPRICED

    def window(self, model: str) -> int | None:
        """Return the tokens that fit the model, when known."""
        info = self._model(model)
        return info.context_window if info else None

    def _model(self, model: str) -> ModelInfo | None:
        if model not in self._models:
            self._models[model] = _look_up(model, self._api_url)
        return self._models[model]

    def _published(self, model: str) -> _Pricing | None:
        info = self._model(model)
        if info is None or not info.prices:
            return None
        if not isinstance(info.prices, list):
            return _pricing(info.prices)
        by_price = {id(entry.prices): _pricing(entry.prices) for entry in info.prices}

        def pricing_now(usage: Usage) -> Cost:
            return by_price[id(info.get_prices(datetime.fromtimestamp(self._now(), UTC)))](usage)

        return pricing_now


def read_prices(path: Path) -> dict[str, Any]:
    """
    Read an own table for :class:`PriceTable` from a YAML file.

    :raises ConfigurationError: when the file is missing or no such table.
    """
    import yaml

    try:
        own = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"The price table {path} cannot be read: {error}") from error
    if not isinstance(own, dict):
        raise ConfigurationError(f"The price table {path} is no mapping from model to prices.")
    return own


def _own_rates(model: str, rates: Any) -> Rates:
    where = f"The price of model {model!r}"
    if not isinstance(rates, Mapping) or not {"input", "output"} <= rates.keys():
        raise ConfigurationError(f"{where} needs 'input' and 'output' in US dollars per million tokens.")
    unknown = [str(key) for key in rates if key not in _KEYS]
    if unknown:
        raise ConfigurationError(f"{where} has the unknown key {unknown[0]!r}; known are {', '.join(_KEYS)}.")
    values = {key: _decimal(f"{where} for {key}", value) for key, value in rates.items()}
    return Rates(values["input"], values.get("cached_input", values["input"]), values["output"])


def _decimal(what: str, value: Any) -> Decimal:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        number = Decimal(-1)
    if not number.is_finite() or number < 0:
        raise ConfigurationError(f"{what} is {value!r}; give US dollars per million tokens, such as '2.50'.")
    return number


def _look_up(model: str, api_url: str | None) -> ModelInfo | None:
    """Find a model by the service's address, by its name, or by the vendor in front of its name."""
    from genai_prices.data_snapshot import get_snapshot

    vendor, slash, name = model.partition("/")
    tries: list[tuple[str, str | None, str | None]] = [(model, None, api_url)] if api_url else []
    tries += [(model, None, None)]
    tries += [(name, vendor, None)] if slash else []
    for name, provider, url in tries:
        try:
            return get_snapshot().find_provider_model(name, None, provider, url)[1]
        except LookupError:
            continue
    return None


def _pricing(prices: ModelPrice) -> _Pricing:
    return _fast(prices) or functools.partial(_calculated, prices)


def _fast(prices: ModelPrice) -> _Pricing | None:
    """Return our own arithmetic for a price, where it gives the same and takes a fraction of the time."""
    rate, cached, output = prices.input_mtok, prices.cache_read_mtok, prices.output_mtok
    if rate is None or output is None or any(getattr(prices, rule) is not None for rule in _EXTRA_RULES):
        return None
    by_kind = (rate, rate if cached is None else cached, output)
    starts = sorted({tier.start for price in by_kind for tier in getattr(price, "tiers", ())})
    sizes = (0, *(start + 1 for start in starts))
    rates = tuple(Rates(*(_at(price, size) for price in by_kind)) for size in sizes)
    return _Tiers(tuple(starts), rates).cost


def _at(price: Decimal | TieredPrices, prompt: int) -> Decimal:
    """Return a price for a prompt of that size."""
    if isinstance(price, Decimal):
        return price
    passed = [tier.price for tier in price.tiers if prompt > tier.start]
    return passed[-1] if passed else price.base


def _calculated(prices: ModelPrice, usage: Usage) -> Cost:
    from genai_prices.types import Usage as Tokens

    if prices.input_mtok is None or prices.output_mtok is None:
        return _UNPRICED
    tokens = Tokens(
        input_tokens=usage.prompt,
        cache_read_tokens=min(usage.cached, usage.prompt),
        output_tokens=usage.completion,
        output_reasoning_tokens=min(usage.reasoning, usage.completion),
    )
    return Cost(usd=prices.calc_price(tokens)["total_price"].normalize())
