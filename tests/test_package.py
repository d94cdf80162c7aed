"""What the package tells Airflow about itself, held against Airflow's schemas and against the code."""

from __future__ import annotations

import dataclasses
import importlib
import json
from importlib.metadata import distribution, entry_points
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest

import airflow_provider_llmbatch
from airflow_provider_llmbatch.engine.connection import parse
from airflow_provider_llmbatch.engine.connection.refusal import FIELDS
from airflow_provider_llmbatch.provider_info import CONN_FIELDS, OPTIONS, get_provider_info
from airflow_provider_llmbatch.settings import Settings

INFO = get_provider_info()


def schema(name: str) -> dict[str, Any]:
    return json.loads((Path(airflow.__file__).parent / name).read_text(encoding="utf-8"))


def test_the_declaration_satisfies_airflows_schemas():
    jsonschema.validate(INFO, schema("provider_info.schema.json"))
    strict = schema("provider.yaml.schema.json")
    for part in ("connection-types", "config", "operators", "hooks", "integrations", "extra-links"):
        jsonschema.validate(INFO[part], {**strict, **strict["properties"][part], "required": []})


def test_name_and_version_are_those_of_the_distribution():
    found = distribution("airflow-provider-llmbatch")
    assert found.name == INFO["package-name"]
    assert found.version == airflow_provider_llmbatch.__version__


def test_airflow_finds_declaration_and_plugin_through_entry_points():
    (info,) = entry_points(group="apache_airflow_provider", module="airflow_provider_llmbatch.provider_info")
    (plugin,) = entry_points(group="airflow.plugins", name="llmbatch")
    assert info.load() is get_provider_info
    assert plugin.load().name == "llmbatch"


def declared_modules() -> list[str]:
    groups = [*INFO["operators"], *INFO["hooks"]]
    return [module for group in groups for module in group["python-modules"]]


@pytest.mark.parametrize("module", declared_modules())
def test_every_declared_module_can_be_imported(module):
    importlib.import_module(module)


@pytest.mark.parametrize(
    "path",
    [
        *(decorator["class-name"] for decorator in INFO["task-decorators"]),
        *INFO["extra-links"],
        *(connection["hook-class-name"] for connection in INFO["connection-types"]),
    ],
)
def test_every_declared_name_exists(path):
    module, _, name = path.rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))


def test_the_hook_says_the_same_as_the_declaration():
    from airflow_provider_llmbatch.hooks.llm import LLMBatchHook

    (declared,) = INFO["connection-types"]
    assert declared["connection-type"] == LLMBatchHook.conn_type
    assert declared["hook-name"] == LLMBatchHook.hook_name
    assert declared["hook-class-name"] == f"{LLMBatchHook.__module__}.{LLMBatchHook.__name__}"
    assert LLMBatchHook.default_conn_name == "llmbatch_default"


def test_every_field_of_the_form_is_one_that_is_read():
    assert set(CONN_FIELDS) <= FIELDS


def test_every_choice_and_default_of_the_form_is_accepted():
    for name, field in CONN_FIELDS.items():
        for value in field["schema"].get("enum", []):
            assert parse("x", host="http://h", password=None, extra={name: value})
        assert parse("x", host="http://h", password=None, extra={name: None})


def test_the_declared_options_are_the_settings():
    assert set(OPTIONS) == {field.name for field in dataclasses.fields(Settings)}
    assert [name for name, option in OPTIONS.items() if option.get("sensitive")] == ["state_url"]


def test_no_name_of_another_provider_is_taken():
    taken = {"llm", "agent", "llm_batch", "llm_branch", "llm_sql", "llm_schema_compare", "llm_file_analysis"}
    assert taken.isdisjoint(d["name"] for d in INFO["task-decorators"])


def test_airflows_form_shows_the_connection_type(api):
    metas = {meta["connection_type"]: meta for meta in api("/ui/connections/hook_meta", "admin").json()}
    ours = metas["llmbatch"]
    assert ours["hook_name"] == "LLM (OpenAI-compatible)"
    assert ours["standard_fields"]["host"]["title"] == "Base URL"
    assert ours["standard_fields"]["port"]["hidden"]
    assert set(ours["extra_fields"]) == set(CONN_FIELDS)
