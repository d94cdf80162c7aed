"""What a simulator is told when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from airflow_provider_llmbatch.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow_provider_llmbatch.simulator.scenario import Scenario

Counts = Literal["reserved", "used"]
CountTokens = Literal["estimate", "o200k"]

#: Tokens that a request without an output cap reserves for its output.
UNCAPPED_OUTPUT_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedKey:
    """A key that the simulator knows; several keys may share an account, and with it the limits."""

    id: str
    key: str = field(repr=False)
    account: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorSettings:
    """
    Everything a simulator can be told.

    :param host: address to listen on.
    :param port: port to listen on; 0 takes a free one.
    :param rpm: requests that one window admits, per account.
    :param tpm: tokens that one window admits, per account.
    :param window_s: length of the sliding window; a minute at real services, shorter in tests.
    :param quantum_s: length of the shorter window that spreads the load inside the long one.
    :param burst: how many times its even share of a limit a quantum admits; None leaves quanta open.
    :param counts: whether a request takes prompt and output cap, or what its reply will have used.
    :param tell_limits: whether replies have ``x-ratelimit-*`` headers.
    :param failed_counts: whether a request that is refused with 429 takes from the request limit.
    :param per_model: whether every model of an account has limits of its own.
    :param latency_s: mean seconds of a call.
    :param jitter: spread of the latency: 0.25 means up to a quarter less or more.
    :param keys: the keys that are let in; none lets every key in, each with its own account.
    :param models: the models that exist; none lets every name pass.
    :param model_window: tokens of prompt and output cap that a model takes; None for no bound.
    :param count_tokens: how text is counted: bytes divided by four, or the o200k vocabulary.
    :param output_words: mean length of a free-text reply.
    :param scenario: scripted faults.
    """

    host: str = "127.0.0.1"
    port: int = 0
    rpm: int = 600
    tpm: int = 90_000
    window_s: float = 60.0
    quantum_s: float = 1.0
    burst: float | None = None
    counts: Counts = "reserved"
    tell_limits: bool = True
    failed_counts: bool = False
    per_model: bool = False
    latency_s: float = 0.4
    jitter: float = 0.25
    keys: tuple[SimulatedKey, ...] = ()
    models: tuple[str, ...] = ()
    model_window: int | None = None
    count_tokens: CountTokens = "estimate"
    output_words: int = 40
    scenario: Scenario | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        for name in ("rpm", "tpm", "window_s", "quantum_s", "output_words"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("burst", "model_window"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigurationError(f"{name} must be above 0 or left out, got {value}")
        if self.latency_s < 0:
            raise ConfigurationError(f"latency_s must be 0 or more, got {self.latency_s}")
        if not 0 <= self.jitter <= 1:
            raise ConfigurationError(f"jitter must lie between 0 and 1, got {self.jitter}")
        if self.quantum_s > self.window_s:
            raise ConfigurationError(
                f"quantum_s ({self.quantum_s}) must not be longer than window_s ({self.window_s})"
            )
        _refuse_twins({key.id: key.key for key in self.keys}, len(self.keys))


def read_keys(text: str) -> tuple[SimulatedKey, ...]:
    """
    Read ``id=key,id@account=key``; without ``@account`` a key has an account of its own.

    :raises ConfigurationError: when a part has no id or no key; the message does not show the key.
    """
    keys = []
    for number, part in enumerate(filter(None, text.split(",")), start=1):
        name, _, key = part.partition("=")
        credential, _, account = name.strip().partition("@")
        if not credential or not key:
            raise ConfigurationError(f"--keys: part {number} must read id=key or id@account=key")
        keys.append(SimulatedKey(id=credential, key=key.strip(), account=account or credential))
    return tuple(keys)


def _refuse_twins(keys: Mapping[str, str], given: int) -> None:
    if len(keys) < given or len(set(keys.values())) < given:
        raise ConfigurationError("keys: every id and every key may appear once only")
