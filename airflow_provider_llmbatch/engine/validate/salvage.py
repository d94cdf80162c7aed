"""
Take valid JSON out of what models like to wrap around it. Never guess.

Laws:

* Valid JSON does not come here and is never altered.
* One candidate: the text from the first bracket or brace. Brackets or braces left over outside of it mean a
  second candidate, or a reply cut short, and nothing is salvaged.
* JSON in quotes, a value behind a key, and a value before a last comma are parts of something else.
* What is dropped is wrapping only: a code fence, a thought between its tags, prose around the JSON, commas
  before a closing bracket. Every character of the value itself stays; a line break or tab that stands in a
  string as it is, is written as JSON writes it.

Quotes, cut strings, comments and anything else that would need an opinion are left to a re-ask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from airflow_provider_llmbatch.engine.validate.parse import NotJson, parse_from

_TAGS = "think|thinking|thought|reasoning"
_THOUGHT_OPENS = re.compile(rf"\s*<({_TAGS})>")
_THOUGHT_CLOSES = re.compile(rf"</(?:{_TAGS})>")
_OPENER = re.compile(r"[{\[]")
_SECOND_CANDIDATE = re.compile(rf"[{{}}\[\]]|</?(?:{_TAGS})>")

_KEY = re.compile(r'\s*(?:```\w*\s*)?"[^"]*"\s*:')
_MORE_AFTER = re.compile(r"\s*,\s*(?:```\s*)?")

# Strings are matched whole, so that nothing inside one counts as punctuation. The possessive quantifiers
# keep a text of a million escaped quotes linear. A comma without a value before it stays, and is no JSON.
_STRING = r'"(?:[^"\\]++|\\.)*+"?'
_STRING_OR_LAST_COMMA = re.compile(rf"({_STRING}|[\[{{,:]\s*+,)|,(?=\s*[}}\]])", re.DOTALL)
_WHOLE_STRING = re.compile(_STRING, re.DOTALL)
_ESCAPE_OR_BREAK = re.compile(r"\\.|[\n\r\t]", re.DOTALL)
_ESCAPED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True, slots=True)
class Salvaged:
    """Valid JSON that stood inside a reply."""

    #: the JSON, character for character but for dropped commas and escaped breaks
    text: str
    #: what was taken off or mended, joined by ``+``: ``thought``, ``fence`` or ``prose``, ``comma``,
    #: ``break``
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
    for body, mended in _mended(candidate):
        try:
            _, end = parse_from(body, 0)
        except NotJson:
            continue
        after = body[end:]
        if _is_part(before, after):
            return None
        steps = (*taken_off, *_wrapping(before, after), *mended)
        return Salvaged(body[:end], "+".join(steps))
    return None


def _mended(candidate: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the candidate as it is, then without what is no JSON but can be read in one way only."""
    yield candidate, ()
    commas = _STRING_OR_LAST_COMMA.sub(lambda match: match[1] or "", candidate)
    yield commas, ("comma",)
    breaks = _WHOLE_STRING.sub(_with_escaped_breaks, candidate)
    if breaks != candidate:
        yield breaks, ("break",)
        yield _STRING_OR_LAST_COMMA.sub(lambda match: match[1] or "", breaks), ("comma", "break")


def _with_escaped_breaks(string: re.Match[str]) -> str:
    return _ESCAPE_OR_BREAK.sub(lambda match: _ESCAPED.get(match[0], match[0]), string[0])


def _is_part(before: str, after: str) -> bool:
    """Whether what was found is not the whole answer: there is another candidate, or something around it."""
    if _SECOND_CANDIDATE.search(before) or _SECOND_CANDIDATE.search(after):
        return True
    if before.endswith('"') and after.startswith('"'):
        return True
    last_line = before.rstrip().rpartition("\n")[2]
    return bool(_KEY.fullmatch(last_line) or _MORE_AFTER.fullmatch(after))


def _wrapping(before: str, after: str) -> tuple[str, ...]:
    if "```" in before:
        return ("fence",)
    # Other spaces than JSON's own are no JSON, and so have kept the text from being read as it stands.
    return ("prose",) if before.strip(" \t\n\r") or after.strip(" \t\n\r") else ()


def _after_thought(text: str) -> str | None:
    # Some servers put the opening tag into the prompt, so that only the closing one is in the reply.
    opens = _THOUGHT_OPENS.match(text)
    if opens:
        _, tag, rest = text.partition(f"</{opens[1]}>")
        return rest if tag else None
    closes = _THOUGHT_CLOSES.search(text)
    return text[closes.end() :] if closes else None
