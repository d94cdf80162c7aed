from __future__ import annotations

import json
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from airflow_provider_llmbatch.engine.validate.wire import Wire, to_wire
from tests.engine.validate.models import Aliased, Counts, Finding, Node, Pets

#: what structured output in strict mode takes, everywhere
KEYWORDS = {
    *("type", "enum", "const", "description", "anyOf", "items", "$ref", "$defs"),
    *("properties", "required", "additionalProperties"),
}


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Odd(BaseModel):
    level: Level = Level.LOW
    size: Literal["s", 1] = "s"
    pair: tuple[int, str]
    same: tuple[int, int] = (1, 2)
    code: str = Field(pattern="^[A-Z]+$", min_length=3, description="the code")
    deep: dict[str, dict[str, int]] | None = None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


def wire_of(output_type: Any) -> Wire:
    return to_wire(TypeAdapter(output_type).json_schema())


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    yield schema
    for child in [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]:
        yield from nodes(child)
    for child in [*schema.get("anyOf", ()), schema.get("items"), schema.get("additionalProperties")]:
        if isinstance(child, dict):
            yield from nodes(child)


@pytest.mark.parametrize("output_type", [Finding, Node, Pets, Counts, Aliased, Odd])
def test_every_object_on_the_wire_is_closed_with_all_fields_required(output_type: Any) -> None:
    """Strict mode refuses pydantic's own schema: defaults, optional fields, keywords. P55"""
    wire = wire_of(output_type)
    assert wire.schema is not None
    Draft202012Validator.check_schema(wire.schema)
    for node in nodes(wire.schema):
        assert node.keys() <= KEYWORDS
        assert "$ref" not in node or node.keys() == {"$ref"}
        if "properties" in node:
            assert node["required"] == list(node["properties"])
            assert node["additionalProperties"] is False


@pytest.mark.parametrize(
    ("output_type", "strict"), [(Finding, True), (Node, True), (Pets, True), (Counts, False), (Open, False)]
)
def test_only_open_objects_keep_the_server_from_being_strict(output_type: Any, strict: bool) -> None:
    wire = wire_of(output_type)
    assert wire.strict is strict
    assert strict or any("open to any key" in note for note in wire.lost)


def test_optional_fields_become_nullable_and_their_defaults_go() -> None:
    wire = wire_of(Finding)
    assert wire.schema is not None
    fields = wire.schema["properties"]
    assert fields["score"] == {"type": ["number", "null"]}
    assert fields["quotes"] == {"type": ["array", "null"], "items": {"$ref": "#/$defs/Quote"}}
    assert fields["best"]["anyOf"] == [{"$ref": "#/$defs/Quote"}, {"type": "null"}]
    assert fields["best"]["description"] == "the passage that decides"
    assert fields["label"] == {"$ref": "#/$defs/Label"}
    assert "default" not in json.dumps(wire.schema)


def test_a_recursive_model_has_an_object_at_its_root() -> None:
    wire = wire_of(Node)
    assert wire.schema is not None
    assert wire.schema["type"] == "object"
    assert wire.schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


def test_constraints_are_told_in_words_and_named() -> None:
    wire = wire_of(Odd)
    assert wire.schema is not None
    code = wire.schema["properties"]["code"]
    assert code == {"type": "string", "description": "the code (minLength 3, pattern ^[A-Z]+$)"}
    assert "code: minLength 3" in wire.lost
    assert "code: pattern ^[A-Z]+$" in wire.lost
    assert "pair: the order of the items' types" in wire.lost
    assert wire.schema["properties"]["same"]["items"] == {"type": "integer"}


@pytest.mark.parametrize(
    "output_type",
    [list[int], int, Level, Finding | Node, list[dict[str, int]]],
    ids=["list", "int", "enum", "union", "dicts"],
)
def test_a_root_that_is_no_object_is_not_sent_and_says_how_to_send_it(output_type: Any) -> None:
    wire = wire_of(output_type)
    assert wire.schema is None
    assert "make it a field of a model" in wire.lost[0]


def obj(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields)}


@pytest.mark.parametrize(
    ("document", "field", "strict", "lost"),
    [
        (obj(x={}), {}, False, "x: any value"),
        (obj(x=True), {}, False, "x: any value"),
        (obj(x={"type": "array"}), {"type": "array", "items": {}}, False, "x[]: any value"),
        (
            obj(x={"enum": ["a", 1, None]}),
            {"enum": ["a", 1, None], "type": ["string", "integer", "null"]},
            True,
            "",
        ),
        (obj(x={"const": True}), {"const": True, "type": "boolean"}, True, ""),
        (
            obj(x={"oneOf": [{"type": "string"}]}),
            {"anyOf": [{"type": "string"}]},
            True,
            "x: oneOf is sent as anyOf",
        ),
        (obj(x={"allOf": [{"type": "string"}], "title": "X"}), {"type": "string"}, True, ""),
        (obj(x={"allOf": [{}, {"type": "string"}]}), {"allOf": [{}, {"type": "string"}]}, False, "x: allOf"),
        (obj(x={"type": "object"}), {"type": "object", "additionalProperties": True}, False, "x: open"),
        (obj(x={"type": "string", "x-hint": 1, "examples": ["a"]}), {"type": "string"}, True, ""),
        (obj(x={"type": "string", "not": {"const": "a"}}), None, True, 'x: not {"const": "a"}'),
        (obj(x={"type": "object", "patternProperties": {"^a": {}}}), None, False, "x: patternProperties"),
    ],
)
def test_documents_are_rewritten_node_by_node(document: Any, field: Any, strict: bool, lost: str) -> None:
    wire = to_wire(document)
    assert wire.schema is not None
    assert field is None or wire.schema["properties"]["x"] == field
    assert wire.strict is strict
    assert any(note.startswith(lost) for note in wire.lost) if lost else not wire.lost


def test_what_the_wire_says_of_a_field_admits_what_the_schema_admits() -> None:
    wire = wire_of(Finding)
    assert wire.schema is not None
    reply = {"label": "ok", "score": 1, "quotes": [], "best": None, "seen": None, "price": "1.5"}
    Draft202012Validator(wire.schema).validate(reply)
