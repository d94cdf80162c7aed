from __future__ import annotations

import enum
import json
from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from airflow_provider_llmbatch.engine.items import Cost, ItemError, Outcome, PromptRef, Result, Usage
from airflow_provider_llmbatch.engine.sink.columns import columns, fields
from airflow_provider_llmbatch.engine.validate.schema import output_schema


class Mood(enum.StrEnum):
    GOOD = "good"
    BAD = "bad"


class Inner(BaseModel):
    x: int


class Sorted(BaseModel):
    label: str
    mood: Mood
    kind: Literal["a", "b"]
    count: int
    score: float | None = None
    sure: bool
    mixed: int | str
    tags: list[str]
    inner: Inner


def row(result: Result, document: Any = None) -> dict[str, Any]:
    return {column.name: column.read(result) for column in columns(document)}


def result(**fields: Any) -> Result:
    return Result(**{"index": 3, "id": "a", "outcome": Outcome.OK, **fields})


def test_plain_fields_of_a_model_get_columns_and_others_do_not():
    document = output_schema(Sorted).document
    assert document is not None
    assert fields(document) == {
        "label": "text",
        "mood": "text",
        "kind": "text",
        "count": "integer",
        "score": "number",
        "sure": "boolean",
    }


@pytest.mark.parametrize(
    "document",
    [{}, {"type": "array"}, {"properties": "none"}, {"properties": {"x": {"$ref": "#/$defs/x"}}}],
)
def test_a_schema_without_plain_fields_gives_none(document):
    assert fields(document) == {}


def test_a_reference_to_itself_gives_no_column():
    document = {"properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"$ref": "#/$defs/x"}}}
    assert fields(document) == {}


def test_a_result_becomes_a_row():
    found = row(
        result(
            output={"label": "späm", "score": 2},
            served_model="m-1",
            prompt=PromptRef(name="p", version="2", sha="0"),
            attempts=2,
            usage=Usage(prompt=10, completion=4),
            cost=Cost(usd=Decimal("0.000123")),
            metadata={"n": 1},
        ),
        {"properties": {"label": {"type": "string"}, "score": {"type": "number"}}},
    )
    assert json.loads(found.pop("output")) == {"label": "späm", "score": 2}
    assert found == {
        "id": "a",
        "index": 3,
        "outcome": "ok",
        "text": None,
        "error": None,
        "error_class": None,
        "model": "m-1",
        "prompt": "p@2",
        "attempts": 2,
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "usd": Decimal("0.000123"),
        "metadata": '{"n": 1}',
        "output.label": "späm",
        "output.score": 2.0,
    }


def test_an_output_of_text_has_a_column_without_quotes():
    found = row(result(output='say "hi"'))
    assert found["text"] == 'say "hi"'
    assert json.loads(found["output"]) == 'say "hi"'


def test_an_unknown_price_is_no_amount():
    assert row(result(cost=Cost(usd=Decimal(1), unpriced=True)))["usd"] is None


def test_a_failed_item_keeps_its_error():
    error = ItemError(kind="schema", message="no")
    found = row(
        result(outcome=Outcome.INVALID_OUTPUT, error=error), {"properties": {"x": {"type": "string"}}}
    )
    assert (found["error"], found["error_class"], found["output"], found["output.x"]) == (
        "no",
        "schema",
        None,
        None,
    )


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        ("integer", 2.0, 2),
        ("integer", 2.5, None),
        ("integer", True, None),
        ("integer", 2**63, None),
        ("number", 10**400, None),
        ("number", 7, 7.0),
        ("boolean", 1, None),
        ("string", 1, None),
        ("string", "half \ud83d", "half \ufffd"),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_left_to_the_output(kind, value, cell):
    found = row(result(output={"x": value}), {"properties": {"x": {"type": kind}}})["output.x"]
    assert found == cell
    assert type(found) is type(cell)
