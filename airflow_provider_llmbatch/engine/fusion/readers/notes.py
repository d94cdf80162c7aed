"""Notes: every token of a text, in overlapping windows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airflow_provider_llmbatch.engine.fusion.errors import FusionInputError, missing_library
from airflow_provider_llmbatch.engine.fusion.schema import WINDOW
from airflow_provider_llmbatch.errors import ConfigurationError

try:
    from tokenizers import Tokenizer
except ImportError as error:
    raise missing_library("tokenizers", "fusion-text") from error

#: Part of each cache key; rises whenever the same text would be read into other numbers.
VERSION = 1
#: Tokens that two windows share.
OVERLAP = 32
#: Tokens of text in a window, next to its two marks.
INNER = WINDOW - 2


def read_text(given: Mapping[str, Any], max_chars: int) -> str:
    """
    Return the text of a note.

    :param given: ``{"text": …}`` or ``{"path": …}``.
    :raises FusionInputError: a code ``note.*``.
    """
    text = given["text"] if "path" not in given else _from_file(Path(given["path"]))
    if any(ord(sign) < 32 and sign not in "\t\n\r\f\v" for sign in text):
        raise FusionInputError("note.control", "note")
    if not text.strip():
        raise FusionInputError("note.empty", "note")
    if len(text) > max_chars:
        raise FusionInputError("note.too_long", "note", f"{len(text)} characters of at most {max_chars}")
    return str(text)


def _from_file(path: Path) -> str:
    if not path.is_file():
        raise FusionInputError("note.not_found", "note")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FusionInputError("note.encoding", "note", f"byte {error.start}") from error


class Windows:
    """
    Cuts texts into windows of token ids.

    :param folder: holds ``tokenizer.json``. Its own limits are switched off: they cut without a word.
    """

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        marks = [self._tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]", "[PAD]")]
        if None in marks or marks[2] != 0:
            raise ConfigurationError(
                "The tokenizer of text_model is not that of a BERT: it has no [CLS], [SEP] or [PAD] (as 0)."
            )
        self._start, self._end, self._pad = (int(mark or 0) for mark in marks)

    def nothing(self) -> NDArray[np.int32]:
        """Return the window of an empty text: two marks, (1, 256)."""
        window = np.full((1, WINDOW), self._pad, np.int32)
        window[0, :2] = self._start, self._end
        return window

    def cut(self, text: str) -> NDArray[np.int32]:
        """Return the windows of a text, (n, 256); behind their end they are padded."""
        ids = np.asarray(self._tokenizer.encode(text, add_special_tokens=False).ids, np.int32)
        if not len(ids):
            raise FusionInputError("note.empty", "note")
        starts = range(0, max(1, len(ids) - OVERLAP), INNER - OVERLAP)
        windows = np.full((len(starts), WINDOW), self._pad, np.int32)
        for window, start in zip(windows, starts, strict=True):
            inside = ids[start : start + INNER]
            window[0], window[1 : len(inside) + 1], window[len(inside) + 1] = self._start, inside, self._end
        return windows
