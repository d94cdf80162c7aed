"""One row of values becomes an :class:`Item`, or a :class:`BadItem` that says what to mend. No guesses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_llmbatch.engine.items import BadItem, Item, ItemError, Json
from airflow_provider_llmbatch.engine.source.strict import RowProblem

PAYLOADS = ("vars", "prompt", "messages")
KEYS = ("id", *PAYLOADS, "params", "reference", "group", "seq", "metadata")

#: Characters of the longest id; ids go into logs, tables and the console.
MAX_ID_CHARACTERS = 512

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
#: Names in a message are cut to this many, so that a row of a thousand keys stays readable.
_NAMES_SHOWN = 10


def to_item(values: Json, index: int, where: str) -> Item | BadItem:
    """
    Check a row's values and return its item.

    :param where: the row's place in words, for the message.
    """
    try:
        return _item(values, index)
    except RowProblem as problem:
        return bad_item(index, where, problem, id=_readable_id(values, index))


def bad_item(index: int, where: str, problem: RowProblem, *, id: str | None = None) -> BadItem:
    """Return the row that stands for a broken one."""
    error = ItemError(kind="bad_row", message=f"{where}: the row {problem}")
    return BadItem(index=index, id=id or default_id(index), error=error)


def default_id(index: int) -> str:
    """Return the id of a row that names none."""
    return f"#{index}"


def listed(names: Any) -> str:
    """Return names for a message, the first few of them."""
    shown = [repr(str(name)[:60]) for name in names]
    more = f" and {len(shown) - _NAMES_SHOWN} more" if len(shown) > _NAMES_SHOWN else ""
    return ", ".join(shown[:_NAMES_SHOWN]) + more


def _item(values: Json, index: int) -> Item:
    if not isinstance(values, Mapping):
        raise RowProblem(
            f"is {_kind(values)}, not an object; write {{...}} with 'vars', 'prompt' or 'messages'"
        )
    _check_keys(values)
    group, seq = _chain(values)
    return Item(
        index=index,
        id=_id(values, index),
        vars=_object(values, "vars"),
        prompt=_prompt(values.get("prompt")),
        messages=_messages(values.get("messages")),
        params=_object(values, "params") or {},
        reference=values.get("reference"),
        group=group,
        seq=seq,
        metadata=values.get("metadata"),
    )


def _check_keys(values: Mapping[str, Json]) -> None:
    payloads = [key for key in PAYLOADS if values.get(key) is not None]
    unknown = [key for key in values if key not in KEYS]
    if len(payloads) > 1:
        raise RowProblem(
            f"has {' and '.join(payloads)}; an item has exactly one of vars, prompt and messages"
        )
    if not payloads and ("input" in values or "embedding" in values):
        raise RowProblem("asks for embeddings, which cannot be sent yet; only chat completions can")
    if not payloads and unknown:
        raise RowProblem(
            f"has none of vars, prompt and messages, but {listed(unknown)}; "
            "put prompt variables under 'vars' and what is only carried along under 'metadata'"
        )
    if not payloads:
        raise RowProblem("has none of vars, prompt and messages; give one of them")
    if unknown:
        raise RowProblem(
            f"has unknown keys: {listed(unknown)}; put them under 'metadata' to carry them along, "
            f"or correct them to one of {', '.join(KEYS)}"
        )


def _id(values: Mapping[str, Json], index: int) -> str:
    given = values.get("id")
    if given is None:
        return default_id(index)
    name = _name("id", given)
    if len(name) > MAX_ID_CHARACTERS:
        raise RowProblem(f"has an id of {len(name)} characters; at most {MAX_ID_CHARACTERS} are allowed")
    return name


def _readable_id(values: Json, index: int) -> str:
    try:
        return _id(values, index) if isinstance(values, Mapping) else default_id(index)
    except RowProblem:
        return default_id(index)


def _name(key: str, value: Json) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise RowProblem(f"has {_kind(value)} as {key}; give a text that is not empty, or an integer")
    return str(value)


def _object(values: Mapping[str, Json], key: str) -> Mapping[str, Json] | None:
    value = values.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise RowProblem(f"has {_kind(value)} as {key}; give an object")
    return value


def _prompt(value: Json) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise RowProblem(f"has {_kind(value)} as prompt; give text")
    if not value.strip():
        raise RowProblem("has an empty prompt; give text, or leave the row out")
    return value


def _chain(values: Mapping[str, Json]) -> tuple[str | None, int | None]:
    group, seq = values.get("group"), values.get("seq")
    if group is None and seq is None:
        return None, None
    if group is None or seq is None:
        given, missing = ("seq", "group") if group is None else ("group", "seq")
        raise RowProblem(f"has {given} without {missing}; a chain needs both")
    if isinstance(seq, bool) or not isinstance(seq, int) or seq < 0:
        raise RowProblem(f"has {_kind(seq)} as seq; give an integer from 0 that rises within the group")
    return _name("group", group), seq


def _messages(value: Json) -> tuple[Mapping[str, Json], ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not value:
        raise RowProblem(f"has {_kind(value)} as messages; give a list with at least one message")
    for number, message in enumerate(value):
        _check_message(number, message)
    return tuple(value)


def _check_message(number: int, message: Json) -> None:
    if not isinstance(message, Mapping):
        raise RowProblem(f"has {_kind(message)} as message {number}; give an object with role and content")
    if message.get("role") not in _ROLES:
        role = str(message.get("role"))[:40]
        raise RowProblem(f"has the role {role!r} in message {number}; use one of {', '.join(_ROLES)}")
    content = message.get("content")
    if isinstance(content, list | tuple):
        _check_parts(number, content)
    elif content is None and not (message.get("tool_calls") or message.get("function_call")):
        raise RowProblem(f"has no content in message {number}; give text")
    elif content is not None and not isinstance(content, str):
        raise RowProblem(f"has {_kind(content)} as content of message {number}; give text")


def _check_parts(number: int, parts: Any) -> None:
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else _kind(part)
        if kind != "text":
            raise RowProblem(
                f"has a part of type {str(kind)[:40]!r} in message {number}; images, audio and files cannot "
                "be sent yet, only text"
            )
        if not isinstance(part.get("text"), str):
            raise RowProblem(f"has a text part without text in message {number}; give 'text'")


def _kind(value: Json) -> str:
    """Return what a value is in words, without showing it: it can be somebody's text."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {str(value)[:40]}"
        case str():
            return "text" if value else "empty text"
        case list() | tuple():
            return "a list" if value else "an empty list"
        case _:
            return "an object" if isinstance(value, Mapping) else f"a {type(value).__name__}"
