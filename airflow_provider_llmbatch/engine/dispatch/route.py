"""
Which endpoint a request goes to: an ordered table of rules, each with a condition in CEL.

Three kinds of rules, told apart by what their condition reads:

* the *request* (``prompt_tokens``, ``output_tokens``, ``group``, ``variant``) chooses where it goes first;
* what was *seen* (``status``, ``kind``, ``code``, ``outcome``, ``attempts``) chooses where this request goes
  next;
* the *latency* (``latency_ms``, the rolling p95 that all workers share) chooses where the next requests go,
  since one that was answered is never paid again.

The language is the Common Expression Language (https://cel.dev); conditions are checked when the table is
read, which is when the DAG is parsed.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from airflow_provider_llmbatch.engine.expression import cel
from airflow_provider_llmbatch.errors import ConfigurationError

Kind = Literal["request", "seen", "latency"]

#: What a condition may read, with a value of the right type to try it with.
REQUEST_FACTS: Mapping[str, Any] = {"prompt_tokens": 100, "output_tokens": 100, "group": "", "variant": ""}
SEEN_FACTS: Mapping[str, Any] = {"status": 503, "kind": "", "code": "", "outcome": "", "attempts": 1}
LATENCY_FACTS: Mapping[str, Any] = {"latency_ms": 800.0}

_KEYS = frozenset({"if", "from", "use"})
#: What an endpoint that is down is seen to do.
_OUTAGES: Sequence[Mapping[str, Any]] = [
    *({"status": status, "kind": "http"} for status in (503, 500, 502, 504, 529, 401, 402)),
    *({"status": 0, "kind": kind} for kind in ("timeout", "connect", "reset")),
]
#: Failed calls after which a request goes to the next endpoint of a table without rules.
_FAILED_CALLS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the table."""

    #: what was written
    condition: str
    #: endpoint that it leads to
    use: str
    #: endpoint that it leads away from; "" for any
    source: str
    kind: Kind
    program: Any

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether the condition is true for these facts."""
        return self.program.execute(dict(facts)) is True


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """The table, checked."""

    #: names of the endpoints; the first is where a request goes that no rule speaks of
    names: tuple[str, ...]
    rules: tuple[Rule, ...] = ()

    def first(self, request: Mapping[str, Any]) -> str:
        """Return where a request goes first."""
        for rule in self.rules:
            if rule.kind == "request" and rule.holds(request):
                return rule.use
        return self.names[0]

    def diverted(self, name: str, request: Mapping[str, Any], p95_ms: Mapping[str, float]) -> str:
        """
        Return where a request goes instead of ``name`` while that is slow.

        :param p95_ms: rolling latency of each endpoint, where known.
        """
        seen = {name}
        while True:
            facts = {**request, "latency_ms": float(p95_ms.get(name, 0.0))}
            found = next((r.use for r in self._from(name, "latency") if r.holds(facts)), None)
            if found is None or found in seen:
                return name
            seen.add(found)
            name = found

    def after(
        self, name: str, facts: Mapping[str, Any], request: Mapping[str, Any], tried: Collection[str]
    ) -> str | None:
        """
        Return where a request goes after what was seen of it at ``name``; None when no rule says.

        :param tried: endpoints that it has been to; it returns to none of them.
        """
        known = {**request, **facts}
        for rule in self._from(name, "seen"):
            if rule.use not in tried and rule.holds(known):
                return rule.use
        return None

    def instead(self, name: str) -> Sequence[str]:
        """Return the endpoints that requests go to while one is parked: where a rule leads in an outage."""
        found: list[str] = []
        open_ends = [name]
        while open_ends:
            for rule in self._from(open_ends.pop(0), "seen"):
                if rule.use != name and rule.use not in found and any(map(rule.holds, _outages())):
                    found.append(rule.use)
                    open_ends.append(rule.use)
        return found

    @property
    def read_latency(self) -> bool:
        """Whether a rule asks how long calls take."""
        return any(rule.kind == "latency" for rule in self.rules)

    def _from(self, name: str, kind: Kind) -> Sequence[Rule]:
        return [rule for rule in self.rules if rule.kind == kind and rule.source in ("", name)]


def read_routes(names: Sequence[str], rules: Sequence[Any]) -> Routes:
    """
    Check a table.

    :param names: the endpoints.
    :param rules: mappings with ``if`` (the condition), ``use`` and, optionally, ``from``. Without any, each
        endpoint stands in for the one before it.
    :raises ConfigurationError: naming the rule, what is wrong with it, and the remedy.
    """
    if not names:
        raise ConfigurationError("The routes name no endpoint; give at least one.")
    if not rules:
        failed = f"(status >= 500 || kind != 'http') && attempts >= {_FAILED_CALLS}"
        rules = [{"from": one, "if": failed, "use": other} for one, other in itertools.pairwise(names)]
    return Routes(names=tuple(names), rules=tuple(_rule(n, rule, names) for n, rule in enumerate(rules, 1)))


def _outages() -> Iterator[Mapping[str, Any]]:
    for outage in _OUTAGES:
        yield {**REQUEST_FACTS, "code": "", "outcome": "", "attempts": 100, **outage}


def _rule(number: int, rule: Any, names: Sequence[str]) -> Rule:
    if not isinstance(rule, Mapping) or not {"if", "use"} <= set(rule) <= _KEYS:
        raise _refusal(number, f"is {str(rule)[:80]!r}; it has the keys 'if' and 'use', and may have 'from'")
    source, use, condition = str(rule.get("from", "")), str(rule["use"]), rule["if"]
    for key, name in (("use", use), ("from", source)):
        if name not in names and not (key == "from" and not name):
            raise _refusal(
                number, f"has {key!r} {name!r}, which is no endpoint; there are {', '.join(names)}"
            )
    if not isinstance(condition, str):
        condition = str(condition).lower()
    program, kind = _compiled(number, condition)
    if kind == "request" and source:
        raise _refusal(number, "has 'from', but its condition reads only the request; leave 'from' out")
    return Rule(condition=condition, use=use, source=source, kind=kind, program=program)


def _compiled(number: int, condition: str) -> tuple[Any, Kind]:
    try:
        program = cel().compile(condition)
    except ValueError as error:
        raise _refusal(
            number, f"has a condition that is no CEL, {condition!r}: {_first_line(error)}"
        ) from None
    read = set(program.variables())
    known = {**REQUEST_FACTS, **SEEN_FACTS, **LATENCY_FACTS}
    if unknown := sorted(read - set(known)):
        raise _refusal(number, f"reads {unknown[0]!r}, which is not known; known are {', '.join(known)}")
    seen, latency = read & set(SEEN_FACTS), read & set(LATENCY_FACTS)
    if seen and latency:
        raise _refusal(
            number,
            "reads both what was seen and latency_ms; write two rules, as latency moves later requests",
        )
    try:
        value = program.execute(dict(known))
    except (TypeError, RuntimeError, ValueError) as error:
        raise _refusal(number, f"cannot be evaluated, {condition!r}: {_first_line(error)}") from None
    if not isinstance(value, bool):
        raise _refusal(number, f"gives {value!r} and not true or false: {condition!r}")
    return program, "seen" if seen else "latency" if latency else "request"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200]


def _refusal(number: int, problem: str) -> ConfigurationError:
    return ConfigurationError(f"Rule {number} of the routes {problem}.")
