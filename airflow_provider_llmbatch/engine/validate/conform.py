"""
Two ways to check a reply against a schema: a pydantic type, or a JSON Schema document.

A ``Conform`` takes the JSON text and its parsed value and returns the value to keep, or raises
:class:`Mismatch` with a few words that can go into a re-ask: places and rules, not the reply's own content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from airflow_provider_llmbatch.engine.items import Json
from airflow_provider_llmbatch.engine.validate.pointer import resolve
from airflow_provider_llmbatch.errors import ConfigurationError

if TYPE_CHECKING:
    from jsonschema import FormatChecker
    from jsonschema.exceptions import ValidationError as Violation
    from jsonschema.protocols import Validator

Conform = Callable[[str, Json], Json]

#: how many faults of one reply are told
FAULTS = 5

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
#: rules of JSON Schema whose own message names keys of the schema and no content of the reply
_TELLING = frozenset({"required", "dependentRequired"})
_NOT_DATA = ("enum", "const", "default", "examples")


class Mismatch(ValueError):
    """The reply is JSON, and does not satisfy the schema."""


def typed(adapter: TypeAdapter[Any]) -> Conform:
    """Return the check of a pydantic type, in JSON mode: dates, enums and decimals are read from strings."""

    def conform(text: str, value: Json) -> Json:
        try:
            return adapter.dump_python(
                adapter.validate_json(text), mode="json", by_alias=True, warnings=False
            )
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            raise Mismatch(_told(f"{_place(e['loc'])}: {e['msg']}" for e in faults)) from None
        except Exception as error:  # validators of the user's own model may raise anything
            raise Mismatch(f"the output type failed on this reply: {error!r}") from error

    return conform


def documented(schema: dict[str, Any]) -> Conform:
    """
    Return the check of a JSON Schema document.

    :raises ConfigurationError: when the document is no JSON Schema, or points outside of itself.
    """
    validator = _validator(schema)

    def conform(text: str, value: Json) -> Json:
        try:
            violations = list(islice(validator.iter_errors(value), FAULTS + 1))
        except (RecursionError, OverflowError) as error:
            raise Mismatch(f"the schema could not be applied: {error!r}") from error
        if violations:
            raise Mismatch(_told(_rule(violation) for violation in violations))
        return value

    return conform


def _told(faults: Iterable[str]) -> str:
    listed = list(islice(faults, FAULTS + 1))
    return "; ".join(listed[:FAULTS]) + ("; and more" if len(listed) > FAULTS else "")


def _place(path: Iterable[str | int]) -> str:
    return ".".join(str(part)[:40] for part in path) or "$"


def _rule(violation: Violation) -> str:
    from jsonschema.exceptions import best_match

    # Inside of alternatives, the fault of the closest one says more than "none fits".
    deepest = best_match([violation]) or violation
    if deepest.validator in _TELLING:
        rule = deepest.message
    elif deepest.validator == "additionalProperties":
        rule = "has keys that the schema does not know"
    else:
        rule = f"must satisfy {deepest.validator} {json.dumps(deepest.validator_value)[:120]}"
    return f"{_place(deepest.absolute_path)}: {rule}"


def _validator(schema: dict[str, Any]) -> Validator:
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for
    from referencing.jsonschema import EMPTY_REGISTRY

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ConfigurationError(
            f"The output schema is no valid JSON Schema: {error.message[:200]} at {error.json_path}. "
            "Give the schema itself, without the 'json_schema' wrapping of a request."
        ) from error
    _refuse_foreign_references(schema)
    # A registry of our own: the default one would fetch unknown references over the network.
    return kind(schema, registry=EMPTY_REGISTRY, format_checker=_formats())


@cache
def _formats() -> FormatChecker:
    from jsonschema import FormatChecker

    checker = FormatChecker()
    checker.checks("date-time", raises=ValueError)(_is_date_time)
    return checker


def _is_date_time(value: object) -> bool:
    if not isinstance(value, str):
        return True
    return bool(_RFC_3339.fullmatch(value) and datetime.fromisoformat(value.upper()))


def _refuse_foreign_references(schema: dict[str, Any]) -> None:
    for reference in _references(schema):
        try:
            resolve(schema, reference)
        except LookupError as error:
            raise ConfigurationError(
                f"The output schema refers to {reference!r}, which is not in it. Only paths inside the "
                "schema work ('#/$defs/…'): nothing is fetched. Copy the missing part into its '$defs'."
            ) from error


def _references(node: Any) -> Iterable[str]:
    if isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str):
            yield reference
        for key, child in node.items():
            if key not in _NOT_DATA:
                yield from _references(child)
    elif isinstance(node, list):
        for child in node:
            yield from _references(child)
