"""A result as the row of a table: the same columns for every batch, and one for each plain output field."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from airflow_provider_llmbatch.engine.items import Json, Result

Kind = Literal["text", "integer", "number", "boolean", "decimal"]
Value = str | int | float | bool | Decimal | None

#: What stands before the name of an output's field.
PREFIX = "output."
#: Bounds of a whole number in a column.
_INTEGERS = range(-(2**63), 2**63)

_KINDS: Mapping[str, Kind] = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column's name, what it holds, and how it is read from a result."""

    name: str
    kind: Kind
    read: Callable[[Result], Value]

    @property
    def sql_name(self) -> str:
        """The name as a database has it, where a dot would separate."""
        return self.name.replace(".", "_")


def columns(document: Mapping[str, Json] | None = None) -> tuple[Column, ...]:
    """
    Return the columns of results.

    :param document: JSON Schema of the outputs; each of its fields that holds no lists and objects gets a
        column of its own.
    """
    return (*_FIXED, *(_of_output(name, kind) for name, kind in fields(document or {}).items()))


def fields(document: Mapping[str, Json]) -> dict[str, Kind]:
    """Return the fields of an object's schema that hold texts, numbers or booleans, and which of them."""
    definitions = document.get("$defs") or document.get("definitions") or {}
    found = {name: _kind(schema, definitions) for name, schema in _object(document.get("properties")).items()}
    return {name: kind for name, kind in found.items() if kind is not None}


def _kind(schema: Json, definitions: Json, depth: int = 0) -> Kind | None:
    schema = _object(schema)
    if depth > 8:
        return None
    if isinstance(reference := schema.get("$ref"), str):
        return _kind(_object(definitions).get(reference.rpartition("/")[2]), definitions, depth + 1)
    for alternatives in ("anyOf", "oneOf", "allOf"):
        if isinstance(parts := schema.get(alternatives), list):
            return _one({_kind(part, definitions, depth + 1) for part in parts if part != {"type": "null"}})
    if "type" not in schema:
        return _one({_kind_of(value) for value in schema.get("enum", ()) if value is not None})
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return _one({_KINDS.get(type_) for type_ in types if type_ != "null"})


def _one(kinds: set[Kind | None]) -> Kind | None:
    if kinds == {"integer", "number"}:
        return "number"
    return kinds.pop() if len(kinds) == 1 else None


def _kind_of(value: Json) -> Kind | None:
    known: dict[type, Kind] = {str: "text", bool: "boolean", int: "integer", float: "number"}
    return known.get(type(value))


def _of_output(name: str, kind: Kind) -> Column:
    fit = _FITTING[kind]
    return Column(PREFIX + name, kind, lambda result: fit(_object(result.output).get(name)))


def _object(value: Json) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Json) -> str | None:
    return _whole(value) if isinstance(value, str) else None


def _integer(value: Json) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value in _INTEGERS else None


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _boolean(value: Json) -> bool | None:
    return value if isinstance(value, bool) else None


def _json(value: Json) -> str | None:
    return None if value is None else _whole(json.dumps(value, ensure_ascii=False))


def _whole(text: str) -> str:
    """Put the replacement character for half characters, which no table can hold."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


#: How a value gets into a column of its kind; what does not fit is left to the column ``output``.
_FITTING: Mapping[Kind, Callable[[Json], Value]] = {
    "text": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}

_FIXED = (
    Column("id", "text", lambda result: _whole(result.id)),
    Column("index", "integer", lambda result: result.index),
    Column("outcome", "text", lambda result: result.outcome.value),
    Column("output", "text", lambda result: _json(result.output)),
    Column("text", "text", lambda result: _text(result.output)),
    Column("error", "text", lambda result: _whole(result.error.message) if result.error else None),
    Column("error_class", "text", lambda result: result.error.kind if result.error else None),
    Column("model", "text", lambda result: result.served_model),
    Column("prompt", "text", lambda result: str(result.prompt) if result.prompt else None),
    Column("attempts", "integer", lambda result: result.attempts),
    Column("prompt_tokens", "integer", lambda result: result.usage.prompt),
    Column("completion_tokens", "integer", lambda result: result.usage.completion),
    Column("usd", "decimal", lambda result: None if result.cost.unpriced else result.cost.usd),
    Column("metadata", "text", lambda result: _json(result.metadata)),
)
