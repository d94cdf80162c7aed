"""
Take valid JSON out of what models like to wrap around it. Never guess.

Laws:

* Valid JSON does not come here and is never altered.
* One candidate: the text from the first bracket or brace. Brackets or braces left over outside of it mean a
  second candidate, or a reply cut short, and nothing is salvaged.
* What is dropped is wrapping only: a code fence, a thought between its tags, prose around the JSON, commas
  before a closing bracket. Every character of the value itself stays.

Quotes, cut strings and anything else that would need an opinion are left to a re-ask.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_provider_llmbatch.engine.validate.parse import NotJson, parse_from

_TAGS = "think|thinking|thought|reasoning"
_THOUGHT_OPENS = re.compile(rf"\s*<({_TAGS})>")
_THOUGHT_CLOSES = re.compile(rf"</(?:{_TAGS})>")
_OPENER = re.compile(r"[{\[]")
_SECOND_CANDIDATE = re.compile(rf"[{{}}\[\]]|</?(?:{_TAGS})>")

# Strings are matched whole, so that nothing inside one counts as punctuation. The possessive quantifiers
# keep a text of a million escaped quotes linear.
_STRING_OR_LAST_COMMA = re.compile(r'("(?:[^"\\]++|\\.)*+"?)|,(?=\s*[}\]])', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Salvaged:
    """Valid JSON that stood inside a reply."""

    #: the JSON, character for character but for dropped commas
    text: str
    #: what was taken off, joined by ``+``: ``thought``, ``fence`` or ``prose``, ``comma``
    step: str


def salvage(text: str) -> Salvaged | None:
    """Return the one JSON object or array inside ``text``, or None when that would be a guess."""
    # Whole text first: a tag inside a JSON string is no thought.
    found = _unwrapped(text)
    if found is None and (rest := _after_thought(text)) is not None:
        found = _unwrapped(rest, "thought")
    return found


def _unwrapped(text: str, *taken_off: str) -> Salvaged | None:
    opener = _OPENER.search(text)
    if opener is None:
        return None
    before, candidate = text[: opener.start()], text[opener.start() :]
    for body, commas in ((candidate, ()), (_without_last_commas(candidate), ("comma",))):
        try:
            _, end = parse_from(body, 0)
        except NotJson:
            continue
        after = body[end:]
        if _SECOND_CANDIDATE.search(before) or _SECOND_CANDIDATE.search(after):
            return None
        steps = (*taken_off, *_wrapping(before, after), *commas)
        return Salvaged(body[:end], "+".join(steps))
    return None


def _wrapping(before: str, after: str) -> tuple[str, ...]:
    if "```" in before:
        return ("fence",)
    return ("prose",) if before.strip() or after.strip() else ()


def _after_thought(text: str) -> str | None:
    # Some servers put the opening tag into the prompt, so that only the closing one is in the reply.
    opens = _THOUGHT_OPENS.match(text)
    if opens:
        _, tag, rest = text.partition(f"</{opens[1]}>")
        return rest if tag else None
    closes = _THOUGHT_CLOSES.search(text)
    return text[closes.end() :] if closes else None


def _without_last_commas(text: str) -> str:
    return _STRING_OR_LAST_COMMA.sub(lambda match: match[1] or "", text)
