"""What holds for whatever came back: one well-formed outcome or advice, ``ok`` only for what is whole."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from airflow_provider_llmbatch.engine.dispatch import waits
from airflow_provider_llmbatch.engine.dispatch.advise import History, advise
from airflow_provider_llmbatch.engine.dispatch.wire import chat
from airflow_provider_llmbatch.engine.exchange import Failure, Fallback, Final, Reply, Retry, Rewrite
from airflow_provider_llmbatch.engine.items import Usage

NOW = 1_795_953_600.0
HISTORY = History(
    tries=1, max_tries=3, throttled=1, params=frozenset({"max_tokens", "response_format", "temperature"})
)
WORN = History(tries=3, max_tries=3, throttled=50, enlarged=True)

_NAMES = ("finish_reason", "model", "request_id", "code", "type", "param")
#: words for an end that leaves nothing whole behind, written down apart from the decoder's
_NOT_WHOLE = ("length", "max_tokens", "content_filter", "abort", "error", "refusal")


def judge(status: int, headers: Mapping[str, str], body: bytes) -> Reply | Failure:
    """Read an answer and ask for advice about it, twice; return what was read."""
    seen = chat.decode(status, headers, body)
    assert chat.decode(status, headers, body) == seen
    _look_at(seen)
    for history in (HISTORY, WORN):
        advice = advise(seen, headers, history, NOW)
        assert advise(seen, headers, history, NOW) == advice
        if advice is None:
            assert isinstance(seen, Reply)
            # Without text it fails the check of the reply.
            assert may_be_ok(status, body) or not seen.text, body
        elif isinstance(advice, Retry):
            assert 0.0 <= advice.delay_s <= waits.LONGEST_WAIT_S
            assert not advice.uses_try or history is HISTORY
        elif isinstance(advice, Rewrite):
            assert advice.drop in history.params
        elif isinstance(advice, Final | Fallback):
            final = advice if isinstance(advice, Final) else advice.otherwise
            assert not final.outcome.is_good
            assert 0 < len(final.error.message) <= 600
    return seen


def may_be_ok(status: int, body: bytes) -> bool:
    """Whether an answer has a whole reply, judged without the decoder."""
    if not 200 <= status <= 299:
        return False
    data: Any = json.loads(body)
    choice = data["choices"][0]
    content = choice["message"]["content"]
    end = choice.get("finish_reason")
    return bool(
        content
        and isinstance(content, str | list)
        and not data.get("error")
        and not choice["message"].get("refusal")
        and not (isinstance(end, str) and end.lower() in _NOT_WHOLE)
    )


def _look_at(seen: Reply | Failure) -> None:
    for name in _NAMES:
        value = getattr(seen, name, None)
        assert value is None or (isinstance(value, str) and len(value) <= 200)
        _is_storable(value or "")
    if isinstance(seen, Failure):
        assert isinstance(seen.message, str)
        assert 0 < len(seen.message) <= 1000
        _is_storable(seen.message + "".join(seen.keys))
        return
    for text in (seen.text, seen.refusal, seen.reasoning):
        assert isinstance(text, str | None)
    if seen.usage is not None:
        _is_sane(seen.usage)


def _is_storable(text: str) -> None:
    """Databases refuse half characters and NUL."""
    text.encode()
    assert "\0" not in text


def _is_sane(usage: Usage) -> None:
    counts = (usage.prompt, usage.cached, usage.completion, usage.reasoning)
    assert all(isinstance(count, int) and 0 <= count <= 10**12 for count in counts)
    assert usage.cached <= usage.prompt
    assert usage.reasoning <= usage.completion
    assert math.isfinite(usage.total)
