"""Sampled documents are valid for their schema."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from random import Random
from typing import Any, Literal

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from airflow_provider_llmbatch.errors import InputError
from airflow_provider_llmbatch.simulator.pattern_sample import matching
from airflow_provider_llmbatch.simulator.schema_sample import document


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str = Field(min_length=3, max_length=40)
    postcode: str = Field(pattern=r"^[0-9]{4,5}$")


class Person(BaseModel):
    name: str
    age: int = Field(ge=0, lt=120)
    address: Address | None = None
    colours: list[Colour] = Field(min_length=1, max_length=3)
    scores: dict[str, float] = {}
    kind: Literal["private", "business"] = "private"
    friends: list[Person] = []


TREE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "left": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "right": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["name", "left", "right"],
    "additionalProperties": False,
}
MUTUAL = {
    "$defs": {
        "folder": {
            "type": "object",
            "properties": {"entries": {"type": "array", "items": {"$ref": "#/$defs/entry"}}},
            "required": ["entries"],
        },
        "entry": {"anyOf": [{"$ref": "#/$defs/folder"}, {"$ref": "#/$defs/file"}]},
        "file": {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]},
    },
    "$ref": "#/$defs/entry",
}
SHAPES = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
            "required": ["kind", "r"],
        },
        {
            "type": "object",
            "properties": {"kind": {"const": "square"}, "a": {"type": "number"}},
            "required": ["kind", "a"],
        },
    ]
}
SCHEMAS: dict[str, Any] = {
    "anything": {},
    "object without properties": {"type": "object"},
    "label and score": {
        "type": "object",
        "properties": {
            "label": {"enum": ["good", "bad"]},
            "score": {"type": "number", "minimum": 0, "maximum": 1},
        },
        "required": ["label", "score"],
        "additionalProperties": False,
    },
    "const": {"const": {"a": [1, None]}},
    "enum of mixed types": {"enum": [1, "one", None, {"a": 1}]},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "nullable by type list": {"type": ["string", "null"], "maxLength": 5},
    "nullable by anyOf": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "integer range": {"type": "integer", "minimum": 5, "maximum": 7},
    "integer between exclusive bounds": {"type": "integer", "exclusiveMinimum": 5, "exclusiveMaximum": 7},
    "integer multiple": {"type": "integer", "minimum": 10, "multipleOf": 7},
    "number multiple": {"type": "number", "minimum": 0, "maximum": 3, "multipleOf": 0.25},
    "number below": {"type": "number", "exclusiveMaximum": -3},
    "number in a narrow gap": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.001},
    "large number": {"type": "integer", "minimum": 10**12},
    "string bounds": {"type": "string", "minLength": 30, "maxLength": 35},
    "empty string": {"type": "string", "maxLength": 0},
    "pattern": {"type": "string", "pattern": r"^[A-Z]{2}-\d{4}(-[a-f]+)?$"},
    "pattern without anchors": {"type": "string", "pattern": r"(cat|dog)s?"},
    "pattern and length": {"type": "string", "pattern": "^[a-z]*$", "minLength": 4, "maxLength": 6},
    **{
        f"format {name}": {"type": "string", "format": name}
        for name in (
            "date",
            "date-time",
            "time",
            "duration",
            "email",
            "hostname",
            "ipv4",
            "ipv6",
            "uri",
            "uuid",
        )
    },
    "unknown format": {"type": "string", "format": "colour"},
    "array": {"type": "array", "items": {"type": "integer"}},
    "array bounds": {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 3},
    "empty array": {"type": "array", "maxItems": 0},
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "string"}, {"type": "integer"}],
        "items": False,
        "minItems": 2,
    },
    "set": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 2},
    "contains": {"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 50}},
    "map": {
        "type": "object",
        "additionalProperties": {"type": "integer"},
        "minProperties": 2,
        "maxProperties": 4,
    },
    "map with named keys": {
        "type": "object",
        "propertyNames": {"enum": ["en", "de"]},
        "additionalProperties": {"type": "string"},
    },
    "map with key patterns": {
        "type": "object",
        "patternProperties": {"^x-[a-z]{3}$": {"type": "boolean"}},
        "additionalProperties": False,
        "minProperties": 1,
    },
    "few properties": {
        "type": "object",
        "properties": {name: {} for name in "abcdef"},
        "required": ["f"],
        "maxProperties": 2,
    },
    "required without definition": {"type": "object", "required": ["a"]},
    "all of": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"b": {"type": "string"}}, "required": ["b"]},
        ]
    },
    "one of": SHAPES,
    "one of overlapping": {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 50}]},
    "not": {"type": "integer", "minimum": 0, "maximum": 3, "not": {"enum": [0, 1]}},
    "if then else": {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "if": {"properties": {"a": {"const": True}}},
        "then": {"required": ["b"]},
    },
    "reference with an escaped name": {
        "$defs": {"a/b~c d": {"type": "integer"}},
        "$ref": "#/$defs/a~1b~0c%20d",
    },
    "reference with neighbours": {
        "$defs": {"n": {"type": "integer"}},
        "$ref": "#/$defs/n",
        "minimum": 3,
        "maximum": 4,
    },
    "tree": TREE,
    "mutual recursion": MUTUAL,
    "pydantic model": Person.model_json_schema(),
    "draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"type": "integer"}},
        "type": "object",
        "properties": {
            "a": {"$ref": "#/definitions/a"},
            "b": {"type": "array", "items": [{"type": "string"}], "additionalItems": False},
        },
        "required": ["a", "b"],
    },
    "names like keywords": {
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "enum": {"type": "integer"},
            "required": {"type": "boolean"},
        },
        "required": ["type", "enum", "required"],
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_documents_are_valid_for_the_schema(name: str) -> None:
    schema = SCHEMAS[name]
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
    for seed in range(30):
        found = document(schema, f"seed {seed}")
        validator.validate(json.loads(json.dumps(found, allow_nan=False)))


LEAVES = st.sampled_from(
    [
        {"type": "string", "minLength": 2},
        {"type": "string", "format": "date"},
        {"type": ["integer", "null"], "minimum": -3, "maximum": 3},
        {"type": "number", "exclusiveMinimum": 0},
        {"enum": ["a", 1, None]},
        {"const": False},
        {"$ref": "#/$defs/node"},
        True,
    ]
)
NODE = {
    "type": "object",
    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}, "n": {"type": "integer"}},
    "required": ["next"],
    "additionalProperties": False,
}


def _objects(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from("abcd"), parts, max_size=4).flatmap(
        lambda properties: st.builds(
            lambda required, closed: {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": not closed,
            },
            st.lists(st.sampled_from(sorted(properties) or ["e"]), unique=True).filter(
                lambda names: set(names) <= set(properties)
            ),
            st.booleans(),
        )
    )


def _branches(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    arrays = st.builds(
        lambda items, least, more: {
            "type": "array",
            "items": items,
            "minItems": least,
            "maxItems": least + more,
        },
        parts,
        st.integers(0, 2),
        st.integers(0, 2),
    )
    choices = st.lists(parts, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches})
    return arrays | choices | _objects(parts)


@settings(deadline=None, max_examples=100)
@given(st.recursive(LEAVES, _branches, max_leaves=8), st.text(max_size=3))
def test_documents_are_valid_for_composed_schemas(part: Any, seed: str) -> None:
    schema = {"$defs": {"node": NODE}, "type": "object", "properties": {"part": part}, "required": ["part"]}
    jsonschema.validate(document(schema, seed), schema)


def test_a_pydantic_model_reads_its_documents_back() -> None:
    schema = Person.model_json_schema()
    people = [Person.model_validate(document(schema, str(seed))) for seed in range(50)]
    assert any(person.address for person in people)
    assert any(person.friends for person in people)


def test_the_seed_decides_the_document() -> None:
    schema = Person.model_json_schema()
    assert document(schema, "a") == document(schema, "a")
    assert len({json.dumps(document(schema, str(seed))) for seed in range(20)}) == 20


def test_recursion_stays_small() -> None:
    sizes = [len(json.dumps(document(TREE, str(seed)))) for seed in range(50)]
    assert max(sizes) < 5000


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "objekt"}, r"not valid at \$\.type: 'objekt' is not valid"),
        ({"$ref": "#/$defs/absent"}, r"nothing at the reference '#/\$defs/absent'"),
        ({"$ref": "https://example.com/schema"}, r"only references into the schema itself"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, r"no finite document"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, r"no finite document"),
        ({"type": "integer", "minimum": 3, "maximum": 2, "not": {}}, r"no document was found"),
    ],
)
def test_a_schema_without_documents_is_refused_with_words(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        document(schema, "seed")


@pytest.mark.parametrize(
    "pattern",
    [
        r"^abc$",
        r"^[^a-z]+$",
        r"^\w+@\w+\.(com|org)$",
        r"^(?:\d{1,3}\.){3}\d{1,3}$",
        r"^.{5,10}$",
        r"^[\s\d]{2}x??$",
        r"^\S\D\W$",
        r"^[äöü]+[^x]$",
        r"^(?P<year>20\d\d)-(0[1-9]|1[0-2])$",
        r"^\+?[1-9]\d{6,14}$",
        r"colou?r",
    ],
)
def test_patterns_are_matched(pattern: str) -> None:
    rng = Random(1)
    for _ in range(50):
        text = matching(rng, pattern)
        assert re.search(pattern, text), text
