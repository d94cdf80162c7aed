"""
What to do about a reply or a failure: the table of design.md §8 as one pure function.

Classes are decided by the HTTP status first and by the body second. Nothing here waits, sends or
remembers; the dispatcher obeys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_llmbatch.engine.dispatch import waits
from airflow_provider_llmbatch.engine.exchange import (
    Advice,
    Enlarge,
    Failure,
    Fallback,
    Final,
    OtherCredential,
    Reply,
    Retry,
    Rewrite,
    Stop,
)
from airflow_provider_llmbatch.engine.items import ItemError, Outcome

#: First pause of the exponential back-off, and the longest, in seconds.
BACKOFF_FIRST_S = 0.5
BACKOFF_LONGEST_S = 60.0

#: So many refusals in a row are waited out as told; after that each wait is also a longer one. A service that
#: says "now" each time would otherwise be asked without a pause.
BELIEVED = 5

_KEY_CODES = frozenset(
    {
        "invalid_api_key",
        "account_deactivated",
        "billing_hard_limit_reached",
        "budget_exceeded",  # this and the next: LiteLLM's proxy, with status 400
        "expired_key",
        "no_db_connection",  # the key is not the proxy's own, and it has nowhere to look others up
    }
)
_UNKNOWN_MODEL = frozenset({"model_not_found", "deploymentnotfound", "deployment_not_found", "invalid_model"})
#: Statuses that mean the same without a JSON body; other pages come from gateways and pass.
_PLAIN_WORDS = frozenset({401, 402, 404, 405, 413, 429, 529})
_UNKNOWN_MODEL_TEXT = re.compile(r"invalid model name|invalid model:", re.IGNORECASE)
_TOO_LONG_CODES = frozenset(
    {
        "context_length_exceeded",
        "string_above_max_length",
        "request_too_large",
        "exceed_context_size_error",  # llama.cpp, which also sends it with status 500
    }
)
_UNSUPPORTED = frozenset({"unsupported_parameter", "unsupported_value", "unknown_parameter"})
#: Codes of a check that the request did not pass; some services let that become a 500.
_UNCHECKED = frozenset({"unknown_parameter", "invalid_parameter"})
_TOO_LONG = re.compile(
    r"context (window|length|size)|prompt is too long|too many (input )?tokens"
    r"|exceeds? the (available )?(context|model'?s? max)|request too large|input is too long"
    r"|longer than the maximum|exceeds? the maximum allowed length|exceeds? context limit"
    r"|ContextWindowExceeded",
    re.IGNORECASE,
)
_OVER_LIMIT = re.compile(r"\blimit:?\s+(\d[\d,]*).*?\brequested:?\s+(\d[\d,]*)", re.IGNORECASE | re.DOTALL)
#: The output cap has two names, and each is unknown somewhere.
_OTHER_CAP = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_UNSUPPORTED_TEXT = re.compile(
    r"(?:unsupported|unrecognized|unknown|unexpected|extra)[\w ]*(?:parameter|value|argument|field|input)s?"
    r"(?: supplied| provided| name)?[^\w]*['\"`]?(\w+)"
    r"|['\"`](\w+)['\"`][^.]*(?:is not supported|does not support)"
    r"|does not support parameters?\W+(\w+)",
    re.IGNORECASE,
)
_FORM = "response_format"
#: Statuses with which services refuse a parameter; some let a failed check of their own become a 500.
_REFUSING = frozenset({400, 422, 500, 501})
_OTHER_FORM = (
    "If the service does not take schemas in this form, set response_format in the connection to another "
    "one: json_schema, json_object_schema, json_object or none."
)
_FILTER_CODES = frozenset({"content_filter", "content_policy_violation", "responsibleaipolicyviolation"})
_FILTER_TEXT = re.compile(r"ContentPolicyViolation|content management policy", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What has happened to the item so far, the call in question included."""

    #: calls that count as tries, and how many there may be
    tries: int
    max_tries: int
    #: calls that were throttled, in a row
    throttled: int = 0
    #: seconds since the item was first ready to be sent, and how many there may be
    waited_s: float = 0.0
    max_wait_s: float = 6 * 3600.0
    #: names of the parameters that were sent
    params: frozenset[str] = frozenset()
    #: names of those that were sent before and dropped or renamed since
    dropped: frozenset[str] = frozenset()
    #: whether the output cap was raised already
    enlarged: bool = False
    #: a number from 0 to 1 that spreads retries
    luck: float = 0.5


def advise(seen: Reply | Failure, headers: Mapping[str, str], history: History, now: float) -> Advice | None:
    """
    Decide what to do next.

    :param seen: what came back.
    :param headers: the reply's headers, lower-case names.
    :param history: what has happened to the item.
    :param now: Unix seconds, to read dates against.
    :return: None when the reply is complete and can be checked.
    """
    if isinstance(seen, Reply):
        return _about_reply(seen, history)
    if seen.kind != "http":
        return _about_transport(seen, headers, history, now)
    return _about_status(seen, headers, history, now)


def backoff(tries: int, luck: float) -> float:
    """Return the jittered exponential pause after ``tries`` failures, in seconds."""
    longest = min(BACKOFF_LONGEST_S, BACKOFF_FIRST_S * 2.0 ** min(tries - 1, 30))
    return longest * (0.5 + luck / 2)


def _about_reply(reply: Reply, history: History) -> Advice | None:
    if reply.finish_reason == "content_filter":
        return _final(Outcome.CONTENT_FILTERED, "content_filter", "The service's filter stopped the reply.")
    if reply.refusal:
        return _final(Outcome.REFUSED, "refusal", "The model declined; raw_output has its words.")
    if reply.finish_reason in ("length", "max_tokens"):
        thought = reply.usage.reasoning if reply.usage else 0
        hidden = not reply.text and thought > 0
        final = _final(
            Outcome.TRUNCATED,
            "truncated_by_reasoning" if hidden else "truncated",
            f"{thought} tokens of reasoning used up the output cap; raise max_tokens or lower the effort."
            if hidden
            else "The reply was cut at the output cap; raise max_tokens.",
        )
        return final if history.enlarged else Enlarge(otherwise=final)
    return None


def _about_transport(failure: Failure, headers: Mapping[str, str], history: History, now: float) -> Advice:
    if failure.kind == "too_large":
        return _end(failure, Outcome.INVALID_OUTPUT)
    if failure.code == "EMFILE":
        return Retry(delay_s=1.0, uses_try=False, reason=failure.message)
    if failure.kind == "malformed" and failure.status in _PLAIN_WORDS:
        return _about_status(failure, headers, history, now)
    return _again(failure, headers, history, now)


def _about_status(failure: Failure, headers: Mapping[str, str], history: History, now: float) -> Advice:
    status = failure.status or 0
    # Some services tell the kind by the type and put a number of their own into the code.
    codes = {said.lower() for said in (failure.code, failure.type) if said}
    if _filtered(failure, codes):
        return _end(failure, Outcome.CONTENT_FILTERED, kind="content_filter")
    if _too_long(failure, codes):
        return _end(failure, Outcome.TOO_LONG, kind="too_long")
    if _refuses_form(failure, history):
        message = f"{_told(failure)} {_OTHER_FORM}"
        return _final(Outcome.BAD_REQUEST, failure.kind, message, failure)
    if status in (404, 405) or 300 <= status < 400 or _unknown_model(failure, codes):
        return Stop(reason=_told(failure))
    if status in (401, 402, 403) or codes & _KEY_CODES or (status == 429 and "insufficient_quota" in codes):
        return OtherCredential(reason=_told(failure))
    if status in (429, 529):
        return _throttled(failure, headers, history, now)
    if status in (408, 409, 425) or (status >= 500 and not codes & _UNCHECKED):
        return _again(failure, headers, history, now)
    rewrite = _rewrite(failure, codes, history) if status in _REFUSING else None
    return rewrite or _end(failure, Outcome.BAD_REQUEST)


def _throttled(failure: Failure, headers: Mapping[str, str], history: History, now: float) -> Advice:
    told = waits.told(headers, failure.message, now)
    delay = backoff(history.throttled, history.luck) if told is None else told
    if history.throttled > BELIEVED:
        delay = max(delay, backoff(history.throttled - BELIEVED, history.luck))
    if history.waited_s + delay > history.max_wait_s:
        return _waited_too_long(failure, history)
    return Retry(delay_s=delay, uses_try=False, shared=True, reason=_told(failure))


def _again(failure: Failure, headers: Mapping[str, str], history: History, now: float) -> Advice:
    if history.tries >= history.max_tries:
        return Fallback(reason=_told(failure), otherwise=_end(failure, Outcome.EXHAUSTED))
    delay = max(backoff(history.tries, history.luck), waits.retry_after(headers, now) or 0.0)
    if history.waited_s + delay > history.max_wait_s:
        return _waited_too_long(failure, history)
    return Retry(delay_s=delay, reason=_told(failure))


def _waited_too_long(failure: Failure, history: History) -> Final:
    message = f"{_told(failure)} (waited {history.waited_s:.0f} s of at most {history.max_wait_s:.0f} s)"
    return _final(Outcome.EXHAUSTED, "max_wait", message, failure)


def _filtered(failure: Failure, codes: set[str]) -> bool:
    if codes & _FILTER_CODES:
        return True
    return failure.status == 400 and _FILTER_TEXT.search(failure.message) is not None


def _unknown_model(failure: Failure, codes: set[str]) -> bool:
    if codes & _UNKNOWN_MODEL:
        return True
    return failure.status == 400 and _UNKNOWN_MODEL_TEXT.search(failure.message) is not None


def _too_long(failure: Failure, codes: set[str]) -> bool:
    if failure.status == 413 or codes & _TOO_LONG_CODES:
        return True
    if failure.status == 429:
        over = _OVER_LIMIT.search(failure.message)
        return over is not None and _number(over[2]) > _number(over[1])
    return failure.status in (400, 422) and _TOO_LONG.search(failure.message) is not None


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _refuses_form(failure: Failure, history: History) -> bool:
    """Whether the schema is at fault: no other try would help, and without it replies would be guesses."""
    named = (failure.param or "").startswith(_FORM) or _FORM in failure.message
    return named and _FORM in history.params and failure.status in _REFUSING


def _rewrite(failure: Failure, codes: set[str], history: History) -> Rewrite | None:
    told = _UNSUPPORTED_TEXT.search(failure.message)
    if not codes & _UNSUPPORTED and told is None:
        return None
    named = failure.param or (told and next(filter(None, told.groups()), None)) or ""
    name = named.split(".")[0]
    if name not in history.params:
        return None
    renamed = _OTHER_CAP.get(name)
    if renamed in history.dropped:
        # Neither name of the output cap is taken; without one a call could use any number of tokens.
        return None
    return Rewrite(drop=name, rename_to=renamed, reason=_told(failure))


def _end(failure: Failure, outcome: Outcome, kind: str | None = None) -> Final:
    return _final(outcome, kind or failure.kind, _told(failure), failure)


def _final(outcome: Outcome, kind: str, message: str, failure: Failure | None = None) -> Final:
    status, code = (failure.status, failure.code or failure.type) if failure else (None, None)
    return Final(outcome=outcome, error=ItemError(kind=kind, message=message, status=status, code=code))


def _told(failure: Failure) -> str:
    status = f"HTTP {failure.status}" if failure.status else failure.kind
    return f"{status}: {failure.message}" if failure.message else status
