from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import pytest
from pydantic import BaseModel

from airflow_provider_llmbatch.engine.validate.schema import output_schema
from airflow_provider_llmbatch.errors import ConfigurationError
from tests.engine.validate.models import QUOTE_DOCUMENT, Finding, not_a_type

HERE = "tests.engine.validate.models"

T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: list[T]


class Calling(BaseModel):
    call: Callable[[], None]


@pytest.mark.parametrize("spec", [None, str])
def test_plain_text_has_no_schema(spec: Any) -> None:
    schema = output_schema(spec)
    assert schema.is_text
    assert schema.digest == ""
    assert schema.response_format() is None
    assert schema.not_on_wire == ()


@pytest.mark.parametrize("spec", [Finding, f"{HERE}:Finding", f"{HERE}.Finding"])
def test_a_model_and_a_path_to_it_are_the_same(spec: Any) -> None:
    schema = output_schema(spec)
    assert schema.digest == output_schema(Finding).digest
    assert re.fullmatch("[0-9a-f]{64}", schema.digest)


def test_the_request_parameter_is_that_of_native_structured_output() -> None:
    response_format = output_schema(Finding).response_format()
    assert response_format is not None
    assert response_format["type"] == "json_schema"
    assert response_format["json_schema"].keys() == {"name", "strict", "schema"}
    assert response_format["json_schema"]["name"] == "Finding"
    assert response_format["json_schema"]["strict"] is True


def test_a_schema_that_cannot_be_sent_is_still_checked() -> None:
    schema = output_schema(list[int])
    assert schema.response_format() is None
    assert schema.not_on_wire
    assert not schema.is_text
    assert schema.digest


@pytest.mark.parametrize("title", ["Page[Finding]", "größe/1", "x" * 100, "", "!!!"])
def test_the_name_on_the_wire_has_only_what_servers_take(title: str) -> None:
    response_format = output_schema({**QUOTE_DOCUMENT, "title": title}).response_format()
    assert response_format is not None
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", response_format["json_schema"]["name"])


def test_a_generic_model_works() -> None:
    response_format = output_schema(Page[Finding]).response_format()
    assert response_format is not None
    assert response_format["json_schema"]["name"] == "Page_Finding"


def test_fields_keep_their_order_and_the_digest_does_not_mind_it() -> None:
    fields = {"why": {"type": "string"}, "answer": {"type": "string"}}
    document = {"type": "object", "properties": fields, "required": ["why", "answer"]}
    turned = {**document, "properties": dict(reversed(fields.items()))}
    schema = output_schema(MappingProxyType(document))
    response_format = schema.response_format()
    assert response_format is not None
    assert list(response_format["json_schema"]["schema"]["properties"]) == ["why", "answer"]
    assert schema.digest == output_schema(turned).digest
    assert schema.digest != output_schema(QUOTE_DOCUMENT).digest


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("no.such.module:Model", "cannot be imported"),
        (f"{HERE}:Missing", "has no attribute 'Missing'"),
        ("Finding", "package.module:Model"),
        ("", "cannot be imported"),
        ("not a path", "cannot be imported"),
        (f"{HERE}:NOT_A_TYPE", "is a text"),
        (f"{HERE}:not_a_type", "is a function"),
        (not_a_type, "is a function"),
        (HERE, "is a module"),
        (42, "No JSON Schema can be made"),
        (Calling, "No JSON Schema can be made"),
        ({"type": "strange"}, "no valid JSON Schema"),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, "without the 'json_schema' wrapping"),
        ({"properties": {"x": {"$ref": "https://example.org/x.json"}}}, "nothing is fetched"),
        ({"properties": {"x": {"$ref": "#/$defs/Gone"}}}, "'#/$defs/Gone', which is not in it"),
        ({"properties": {"x": {"$ref": "#anchor"}}}, "Only paths inside"),
        ({"enum": [float("nan")]}, "is no JSON"),
        ({"const": {1, 2}}, "is no JSON"),
        ({"type": "string", "pattern": "("}, "no valid JSON Schema"),
    ],
)
def test_what_cannot_be_a_schema_is_refused_with_the_remedy(spec: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        output_schema(spec)


def test_a_path_may_name_a_json_schema() -> None:
    assert output_schema(f"{HERE}:QUOTE_DOCUMENT").digest == output_schema(QUOTE_DOCUMENT).digest


def test_a_field_called_like_a_keyword_is_a_field() -> None:
    document = {"type": "object", "properties": {"$ref": {"type": "string"}, "title": {"type": "string"}}}
    response_format = output_schema(document).response_format()
    assert response_format is not None
    assert response_format["json_schema"]["schema"]["required"] == ["$ref", "title"]
