"""Strings made of a word list or a format; the same random source gives the same string."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

_VOCABULARY = (
    "amber anchor arrival autumn balance basket bridge bright careful carrier castle circle clear coastal "
    "copper corner cotton daily delivery distant early eastern engine evening fabric fair family field "
    "filter final forest fresh garden gentle glass golden grain harbour helpful honest island journey "
    "kettle kind ladder lantern late leather lively market meadow modest morning narrow northern notice "
    "ocean office open orchard order paper parcel patient pocket polite printer quiet rapid ready receipt "
    "refund regular river round sample season shelf silver simple soft southern spring stable steady "
    "stone summer sunny table tidy timber travel useful valley velvet village warm window winter wooden"
)
WORDS = tuple(_VOCABULARY.split())

_EPOCH = datetime(2024, 1, 1, tzinfo=UTC)


def words(rng: Random, number: int) -> str:
    """Return ``number`` words with spaces between them."""
    return " ".join(rng.choices(WORDS, k=number))


def prose(rng: Random, number: int) -> str:
    """Return sentences with ``number`` words in all."""
    sentences = []
    while number > 0:
        length = min(number, rng.randint(7, 14))
        sentences.append(words(rng, length).capitalize() + ".")
        number -= length
    return " ".join(sentences)


def fitting(rng: Random, minimum: int, maximum: int | None) -> str:
    """Return words whose length in characters lies within the bounds."""
    text = words(rng, rng.randint(1, 4))
    while len(text) < minimum:
        text = f"{text} {words(rng, 2)}"
    if maximum is not None and len(text) > maximum:
        text = text[:maximum]
    # A blank at a cut edge is valid, but reads like a mistake.
    return text[:-1] + "s" if text.endswith(" ") else text


def formatted(rng: Random, name: str) -> str | None:
    """Return a string of the JSON Schema format ``name``; None when the format is not known."""
    make = _FORMATS.get(name)
    return make(rng) if make else None


def _moment(rng: Random) -> datetime:
    return _EPOCH + timedelta(seconds=rng.randrange(2 * 365 * 86_400))


def _numbers(rng: Random, number: int) -> list[str]:
    return [str(rng.randint(1, 254)) for _ in range(number)]


_FORMATS: dict[str, Callable[[Random], str]] = {
    "date": lambda rng: _moment(rng).date().isoformat(),
    "date-time": lambda rng: _moment(rng).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "time": lambda rng: _moment(rng).strftime("%H:%M:%SZ"),
    "duration": lambda rng: f"P{rng.randint(1, 30)}DT{rng.randint(1, 23)}H",
    "email": lambda rng: f"{rng.choice(WORDS)}.{rng.choice(WORDS)}@example.com",
    "hostname": lambda rng: f"{rng.choice(WORDS)}.example.com",
    "ipv4": lambda rng: ".".join(["10", *_numbers(rng, 3)]),
    "ipv6": lambda rng: f"2001:db8::{rng.randint(1, 9999)}",
    "uri": lambda rng: f"https://example.com/{rng.choice(WORDS)}/{rng.choice(WORDS)}",
    "uuid": lambda rng: str(UUID(int=rng.getrandbits(128), version=4)),
}
