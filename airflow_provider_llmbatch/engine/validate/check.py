"""Check one reply: strict JSON first, salvage without loss second, the schema last."""

from __future__ import annotations

import json
from dataclasses import dataclass

from airflow_provider_llmbatch.engine.items import ItemError, Json
from airflow_provider_llmbatch.engine.validate.conform import Mismatch
from airflow_provider_llmbatch.engine.validate.parse import NotJson, parse_strict
from airflow_provider_llmbatch.engine.validate.salvage import salvage
from airflow_provider_llmbatch.engine.validate.schema import OutputSchema

#: longest message of a problem, in characters
MESSAGE_LENGTH = 600

# Sorted, so that equal values have equal text; it also refuses what a validator made infinite.
_canonical = json.JSONEncoder(sort_keys=True, allow_nan=False, check_circular=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What came of a reply: an output, or a problem."""

    output: Json = None
    #: the reply's text, when it says something else than ``output``
    raw_output: str | None = None
    #: which salvage step made the text readable
    salvage: str | None = None
    #: why there is no output: ``empty``, ``json`` or ``schema``
    problem: ItemError | None = None


def check(schema: OutputSchema, text: str | None) -> Checked:
    """
    Return the output that ``text`` holds.

    A reply cut at the output cap must not come here: it is ``truncated``, whatever it holds.

    :param schema: what the reply must satisfy.
    :param text: the model's text.
    """
    if text is None or not text.strip():
        return _failed("empty", "The reply has no text.", None)
    if schema.is_text:
        whole = _whole(text)
        return Checked(output=whole, salvage=None if whole == text else "half_character")
    step = None
    source = text
    try:
        value = parse_strict(text)
    except NotJson as error:
        salvaged = salvage(text)
        if salvaged is None:
            return _failed("json", f"The reply is not JSON: {error}.", text)
        source, step, value = salvaged.text, salvaged.step, parse_strict(salvaged.text)
    try:
        output = schema.conform(source, value)
    except Mismatch as error:
        return _failed("schema", f"The reply does not satisfy the schema: {error}.", text, step)
    try:
        # A document's check hands back what it was given, which needs no comparison.
        same = output is value or _canonical(output) == _canonical(value)
    except ValueError:
        return _failed("schema", "The reply does not satisfy the schema: a number is not finite.", text, step)
    return Checked(output=output, raw_output=None if same and not step else _whole(text), salvage=step)


def _failed(kind: str, message: str, text: str | None, step: str | None = None) -> Checked:
    problem = ItemError(kind=kind, message=_cut(message))
    return Checked(raw_output=None if text is None else _whole(text), salvage=step, problem=problem)


def _cut(message: str) -> str:
    return message if len(message) <= MESSAGE_LENGTH else message[: MESSAGE_LENGTH - 1] + "…"


def _whole(text: str) -> str:
    """Put the replacement character for half characters, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
