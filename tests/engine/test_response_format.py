"""Services take a schema in different forms; where they do not show it to the model, the prompt does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pydantic import BaseModel, Field

from airflow_provider_llmbatch.engine.compose import Composer
from airflow_provider_llmbatch.engine.connection import parse
from airflow_provider_llmbatch.engine.dispatch.advise import History, advise
from airflow_provider_llmbatch.engine.dispatch.wire import chat
from airflow_provider_llmbatch.engine.exchange import Failure, Final, Retry, Rewrite
from airflow_provider_llmbatch.engine.items import Item, Outcome, Request
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.observe.events import Fanout
from airflow_provider_llmbatch.engine.prompt import inline_prompt
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.source import open_source
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.engine.tokens.count import TokenCounter
from airflow_provider_llmbatch.engine.validate.schema import output_schema
from airflow_provider_llmbatch.simulator.scenario import check_scenario
from airflow_provider_llmbatch.simulator.server import running
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings

COUNTER = TokenCounter("o200k_base")
REMEDY = "set response_format in the connection to another one"


class Label(BaseModel):
    words: list[str] = Field(max_length=3)
    note: str | None = None


SCHEMA = output_schema(Label)


@pytest.fixture
def simulator() -> Iterator[Callable[..., str]]:
    """Return a function that starts a simulator with a scenario and returns its base URL."""
    with ExitStack() as stack:

        def start(*rules: dict[str, Any]) -> str:
            scenario = check_scenario({"rules": rules}, source="test")
            return stack.enter_context(running(SimulatorSettings(latency_s=0.0, scenario=scenario)))

        yield start


def job(url: str, form: str, folder: Any) -> Job:
    return Job(
        source=open_source([{"id": f"i{n}", "vars": {"text": f"row {n}"}} for n in range(4)]),
        prompt=inline_prompt("Be brief.", "Label {{ text }}"),
        connection=parse("llm", host=url, password="sk-test", extra={"response_format": form}),
        model="m-1",
        schema=SCHEMA,
        result_path=str(folder / "results"),
    )


async def outcomes(asked: Job, folder: Any) -> dict[str, int]:
    state = SqliteState(folder / "state.db")
    try:
        manifest = await run(asked, whole(asked), state=state, observe=Fanout([]), note=print)
    finally:
        await state.close()
    return {name: count for name, count in manifest.counts.items() if count}


def test_every_form_has_its_request_parameter():
    document = Label.model_json_schema()
    assert SCHEMA.response_format("json_schema")["type"] == "json_schema"
    assert SCHEMA.response_format("json_object_schema") == {"type": "json_object", "schema": document}
    assert SCHEMA.response_format("json_object") == {"type": "json_object"}
    assert SCHEMA.response_format("none") is None


@pytest.mark.parametrize("form", ["json_object_schema", "json_object", "none"])
def test_the_prompt_says_the_schema_where_the_service_may_not(form):
    assert json.loads(SCHEMA.instructions(form).partition("\n")[2]) == Label.model_json_schema()
    assert SCHEMA.instructions("json_schema") is None
    assert output_schema(str).instructions(form) is None


def test_a_schema_that_no_form_can_carry_is_said_in_the_prompt():
    listed = output_schema(list[int])
    assert listed.response_format("json_object") is None
    assert '"integer"' in listed.instructions("json_schema")


@pytest.mark.parametrize(
    ("system", "given", "expected"),
    [
        ("Be brief.", {"prompt": "hi"}, ["Be brief.\n\nJSON!", "hi"]),
        ("", {"prompt": "hi"}, ["JSON!", "hi"]),
        ("", {"messages": [{"role": "system", "content": "Own."}]}, ["Own.\n\nJSON!"]),
        ("", {"messages": [{"role": "user", "content": "hi"}]}, ["JSON!", "hi"]),
    ],
)
def test_instructions_join_the_system_message_and_are_counted(system, given, expected):
    composer = Composer(inline_prompt(system, None), "m", COUNTER, instructions="JSON!")
    request = composer.compose(Item(index=0, id="a", **given))
    assert isinstance(request, Request)
    assert [message["content"] for message in request.messages] == expected
    assert request.messages[0]["role"] == "system"
    assert request.prompt_tokens == COUNTER.count_messages(request.messages)
    head = [{"role": "system", "content": f"{system}\n\nJSON!" if system else "JSON!"}]
    assert composer.fixed_tokens == COUNTER.count_messages(head)


@pytest.mark.parametrize("form", ["json_schema", "json_object_schema"])
async def test_a_run_asks_in_the_form_that_the_connection_names(form, simulator, tmp_path):
    assert await outcomes(job(simulator(), form, tmp_path), tmp_path) == {"ok": 4}


async def test_a_service_that_takes_no_form_at_all_is_asked_without_one(simulator, tmp_path):
    refuses = {"match": {"param": "response_format"}, "reply": {"status": 400, "error": {"message": "No."}}}
    answers = {"match": {"contains": '"words"'}, "reply": {"content": '{"words": ["a"]}'}}
    url = simulator(refuses, answers)
    assert await outcomes(job(url, "none", tmp_path), tmp_path) == {"ok": 4}


async def test_a_refused_form_ends_each_item_after_one_call_with_the_remedy(simulator, tmp_path):
    """Without the schema a reply would be a guess, and a 500 of a failed check is no reason to try again."""
    detail = "('body', 'response_format', 'type'): Input should be 'text' or 'json_object'"
    error = {"message": detail, "type": "internal_server_error"}
    url = simulator({"match": {"param": "response_format"}, "reply": {"status": 500, "error": error}})
    assert await outcomes(job(url, "json_schema", tmp_path), tmp_path) == {"bad_request": 4}
    lines = (tmp_path / "results").glob("part-*.jsonl")
    rows = [json.loads(line) for part in lines for line in part.read_text().splitlines()]
    assert {row["attempts"] for row in rows} == {1}
    assert all(REMEDY in row["error"]["message"] for row in rows)


SENT = History(tries=1, max_tries=5, params=frozenset({"response_format", "temperature"}))


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "This response_format type is unavailable now"}}),
        (400, {"error": {"message": "Not with this model.", "param": "response_format"}}),
        (400, {"error": {"code": "unsupported_parameter", "param": "response_format", "message": "No."}}),
        (422, {"detail": [{"type": "literal_error", "loc": ["body", "response_format", "type"]}]}),
        (500, {"error": {"message": "'loc': ('body', 'response_format', 'type')"}}),
    ],
)
def test_every_spelling_of_a_refused_form_is_final(status, body):
    seen = chat.decode(status, {}, json.dumps(body).encode())
    advice = advise(seen, {}, SENT, 0.0)
    assert isinstance(advice, Final)
    assert advice.outcome is Outcome.BAD_REQUEST
    assert REMEDY in advice.error.message


def test_other_parameters_and_other_failures_go_their_ways():
    other = Failure(kind="http", status=400, code="unsupported_parameter", param="temperature", message="No.")
    assert isinstance(advise(other, {}, SENT, 0.0), Rewrite)
    broken = Failure(kind="http", status=500, message="worker died")
    assert isinstance(advise(broken, {}, SENT, 0.0), Retry)
    unsent = Failure(kind="http", status=500, message="response_format")
    assert isinstance(advise(unsent, {}, History(tries=1, max_tries=5), 0.0), Retry)
