"""
Scripted faults: an ordered list of rules, the first that matches answers.

.. code-block:: yaml

    seed: 7
    rules:
      - match: {contains: "order 17", attempt: [1, 2]}     # the first two times this very body is seen
        reply: {status: 503, error: {message: overloaded, type: server_error}}
      - match: {key: a, after_s: 20, until_s: 40}
        reply: {status: 401, error: {code: invalid_api_key, message: "revoked"}}
      - match: {probability: 0.01}
        reply: {reset: after}
      - match: {every: 50}
        reply: {truncate: true}

All conditions of a rule must hold. ``nth``, ``every`` and ``first`` count the calls that meet the rule's
other conditions and that no earlier rule answered; calls refused by admission control are not counted.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from airflow_provider_llmbatch.errors import ConfigurationError

Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Match(_Part):
    """When a rule answers; without conditions it always does."""

    #: text that a message of the request holds
    contains: str | None = None
    model: str | None = None
    #: id of the key
    key: str | None = None
    #: a parameter that the request carries
    param: str | None = None
    #: which times this very body is seen, from 1
    attempt: Positive | tuple[Positive, ...] | None = None
    #: which calls, from 1
    nth: Positive | tuple[Positive, ...] | None = None
    #: every so many calls
    every: Positive | None = None
    #: so many calls from the start
    first: Positive | None = None
    #: share of calls; decided by seed, body and attempt, not by their order
    probability: Annotated[float, Field(ge=0, le=1)] | None = None
    #: seconds since the scenario was set
    after_s: Seconds | None = None
    until_s: Seconds | None = None


class Fault(_Part):
    """What a rule answers instead of, or does to, the ordinary reply."""

    status: Annotated[int, Field(ge=200, le=599)] = 200
    #: the whole body: text as it stands, anything else as JSON
    body: Any = None
    #: OpenAI's error object: message, type, code, param
    error: dict[str, Any] | None = None
    headers: dict[str, str] = {}
    #: seconds on top of the latency
    delay_s: Seconds = 0.0
    #: ``skip`` answers before admission control; without it, a status 4xx does
    admission: Literal["take", "skip"] | None = None
    #: abort the TCP connection before anything is sent, or after the headers and some of the body
    reset: Literal["before", "after"] | None = None
    #: declare the whole length, send half of it and close
    half_body: bool = False
    #: seconds over which the body trickles out
    drip_s: Seconds = 0.0
    #: say ``content-encoding: gzip`` and send a damaged stream
    broken_gzip: bool = False
    #: cut the content in half, with finish_reason ``length``
    truncate: bool = False
    #: the model's words of refusal
    refusal: str | None = None
    #: Azure's filter: ``request`` answers 400, ``reply`` answers 200 without content
    content_filter: Literal["request", "reply"] | None = None
    #: literal content of the message; may be null
    content: str | None = None
    finish_reason: str | None = None
    #: ``missing``, null, or an object sent as it stands
    usage: Literal["missing"] | dict[str, Any] | None = None
    #: put the Authorization header into the error message and a header
    echo_authorization: bool = False

    @model_validator(mode="after")
    def _check_combination(self) -> Fault:
        whole = [name for name in ("body", "error", "content_filter", "refusal") if self.sets(name)]
        if len(whole) > 1:
            raise ValueError(f"{' and '.join(whole)} exclude each other")
        cut = [name for name in ("reset", "half_body", "drip_s") if getattr(self, name)]
        if len(cut) > 1:
            raise ValueError(f"{' and '.join(cut)} exclude each other")
        return self

    def sets(self, name: str) -> bool:
        """Whether the scenario names the field, be it as null."""
        return name in self.model_fields_set

    @property
    def is_before_admission(self) -> bool:
        """Whether the answer comes before admission control and takes nothing from a limit."""
        if self.admission is not None:
            return self.admission == "skip"
        return 400 <= self.status < 500 or self.content_filter == "request"


class Rule(_Part):
    """A condition and what happens then."""

    match: Match = Match()
    reply: Fault


class Scenario(_Part):
    """An ordered list of rules; the first that matches answers."""

    rules: tuple[Rule, ...] = ()
    seed: int = 0


def read_scenario(path: str | Path) -> Scenario:
    """
    Read a scenario from a YAML file.

    :raises ConfigurationError: when the file cannot be read or says something unknown.
    """
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"scenario {path} cannot be read: {error}") from error
    return check_scenario({} if content is None else content, source=str(path))


def check_scenario(content: Any, *, source: str) -> Scenario:
    """
    Return the scenario that ``content`` describes.

    :raises ConfigurationError: naming ``source``, each wrong place, what stands there and what is expected.
    """
    try:
        return Scenario.model_validate(content)
    except ValidationError as error:
        faults = [
            f"{'.'.join(str(step) for step in fault['loc']) or 'the file'}: {fault['msg']}"
            f" (got {str(fault['input'])[:80]!r})"
            for fault in error.errors()
        ]
        raise ConfigurationError(f"scenario {source}: {'; '.join(faults)}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What the rules look at."""

    text: str
    model: str
    credential: str
    params: Mapping[str, Any]
    sha: str
    #: seconds since the scenario was set
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """The rule that answers a call, and what to remember if the call is let in."""

    rule: int | None
    reached: tuple[int, ...]
    sha: str


class Script:
    """
    A scenario being played.

    :param scenario: the rules; None plays none.
    """

    def __init__(self, scenario: Scenario | None) -> None:
        self._scenario = scenario or Scenario()
        self._calls: Counter[int] = Counter()
        self._bodies: Counter[str] = Counter()

    def pick(self, call: Call) -> Pick:
        """Return which rule answers ``call``; nothing is counted yet."""
        reached = []
        attempt = self._bodies[call.sha] + 1
        for number, rule in enumerate(self._scenario.rules):
            if not (_fits(rule.match, call, attempt) and self._is_drawn(number, rule.match, call, attempt)):
                continue
            reached.append(number)
            if _is_turn(rule.match, self._calls[number] + 1):
                return Pick(rule=number, reached=tuple(reached), sha=call.sha)
        return Pick(rule=None, reached=tuple(reached), sha=call.sha)

    def count(self, pick: Pick) -> None:
        """Remember that the call was let in."""
        self._calls.update(pick.reached)
        self._bodies[pick.sha] += 1

    def fault(self, pick: Pick) -> Fault:
        """Return what the picked rule answers; an empty fault without a rule."""
        return Fault() if pick.rule is None else self._scenario.rules[pick.rule].reply

    def _is_drawn(self, number: int, match: Match, call: Call, attempt: int) -> bool:
        if match.probability is None:
            return True
        lot = hashlib.sha256(f"{self._scenario.seed}/{number}/{call.sha}/{attempt}".encode()).digest()
        return int.from_bytes(lot[:8]) < match.probability * 2**64


def _fits(match: Match, call: Call, attempt: int) -> bool:
    return (
        (match.contains is None or match.contains in call.text)
        and match.model in (None, call.model)
        and match.key in (None, call.credential)
        and (match.param is None or match.param in call.params)
        and _is_one_of(match.attempt, attempt)
        and (match.after_s or 0.0) <= call.age_s
        and (match.until_s is None or call.age_s < match.until_s)
    )


def _is_turn(match: Match, number: int) -> bool:
    return (
        _is_one_of(match.nth, number)
        and (match.every is None or number % match.every == 0)
        and (match.first is None or number <= match.first)
    )


def _is_one_of(wanted: int | tuple[int, ...] | None, number: int) -> bool:
    if wanted is None:
        return True
    return number == wanted if isinstance(wanted, int) else number in wanted
