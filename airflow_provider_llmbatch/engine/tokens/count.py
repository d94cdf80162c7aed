"""Count the tokens of a request as the service will."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence

from airflow_provider_llmbatch.engine.items import Json, Message
from airflow_provider_llmbatch.engine.tokens.encodings import (
    DEFAULT_ENCODING,
    PATTERNS,
    encoding_name,
    load_encoding,
)
from airflow_provider_llmbatch.errors import ConfigurationError

#: Per cent of the count that are taken for a model whose encoding is not known.
UNKNOWN_MODEL_PERCENT = 110

#: Tokens around each message, around each name in one, and before the reply.
MESSAGE_TOKENS = 3
NAME_TOKENS = 1
REPLY_TOKENS = 3

#: Parameters that the service puts before the model as text.
COUNTED_PARAMS = ("tools", "functions", "response_format")

#: Characters counted in one go. The pattern's backtracking runs out of stack in a million spaces; a cut
#: in the middle of a word adds a token or two, which 50,000 characters do not show.
_SLICE = 50_000
#: System messages repeat from item to item; user messages do not.
_REMEMBERED = 8


class TokenCounter:
    """
    Counts with one encoding; may be shared by threads.

    :param encoding: name of the encoding.
    :param percent: what to take of each count, 100 for a known encoding.
    """

    def __init__(self, encoding: str, *, percent: int = 100) -> None:
        self.encoding = encoding
        self.percent = percent
        self._remembered = functools.lru_cache(_REMEMBERED)(self._plain)

    @classmethod
    def for_model(
        cls,
        model: str,
        *,
        encoding: str | None = None,
        default: str = DEFAULT_ENCODING,
        on_unknown: Callable[[str], None] = lambda _: None,
    ) -> TokenCounter:
        """
        Return the counter of a model.

        :param encoding: the encoding to use whatever the model's name is.
        :param default: the encoding of models that nobody knows.
        :param on_unknown: is told, in a sentence, when the model's encoding is not known.
        :raises ConfigurationError: for an encoding that is not in the package.
        """
        if encoding is not None and encoding not in PATTERNS:
            raise ConfigurationError(
                f"The encoding {encoding!r} is not known; set one of {', '.join(sorted(PATTERNS))}."
            )
        name = encoding or encoding_name(model)
        if name is not None:
            return cls(name)
        on_unknown(
            f"The encoding of model {model!r} is not known: tokens are counted with {default} and "
            f"{UNKNOWN_MODEL_PERCENT - 100} % are added. Set 'encoding' in the connection to count exactly."
        )
        return cls(default, percent=UNKNOWN_MODEL_PERCENT)

    def count(self, text: str) -> int:
        """Return the tokens of a text; the spelling of a special token is text like any other."""
        return self._scaled(self._plain(text))

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Return the tokens of a conversation, with what the chat format adds around it."""
        return self._scaled(REPLY_TOKENS + sum(self._message(message) for message in messages))

    def count_params(self, params: Mapping[str, Json]) -> int:
        """Return the tokens of tools and schemas among the parameters, which the model reads too."""
        given = (params.get(name) for name in COUNTED_PARAMS)
        return self._scaled(sum(self._plain(_compact(value)) for value in given if value))

    def _message(self, message: Message) -> int:
        total = MESSAGE_TOKENS
        for key, value in message.items():
            if key == "role" or (key == "content" and message.get("role") == "system"):
                total += self._remembered(value) if isinstance(value, str) else self._value(value)
            else:
                total += self._value(value) + (NAME_TOKENS if key == "name" else 0)
        return total

    def _value(self, value: Json) -> int:
        if value is None:
            return 0
        if isinstance(value, str):
            return self._plain(value)
        if isinstance(value, list | tuple):
            return sum(self._part(part) for part in value)
        return self._plain(_compact(value))

    def _part(self, part: Json) -> int:
        """Return the tokens of a content part or a tool call; what is no plain text counts as its JSON."""
        if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
            return self._plain(part["text"])
        return self._plain(_compact(part))

    def _plain(self, text: str) -> int:
        encode = load_encoding(self.encoding).encode_ordinary
        if len(text) <= _SLICE:
            return len(encode(text))
        return sum(len(encode(text[begin : begin + _SLICE])) for begin in range(0, len(text), _SLICE))

    def _scaled(self, tokens: int) -> int:
        return -(-tokens * self.percent // 100)


def _compact(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict)
