"""What cannot work is refused before anything is paid: what, where, which value, and the remedy."""

from __future__ import annotations

import shutil

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_llmbatch.errors import StoreError

NAMED = 'system: You are terse.\nuser: "Say {{ text }}"\n'


@pytest.fixture(autouse=True)
def nothing_arrives(stage):
    """Hold every test of this file to its promise."""
    yield
    assert stage.service.arrivals() == []


def refusal(stage, task, **instance) -> str:
    """Run a task that fails for good, and return what it says."""
    with pytest.raises(AirflowFailException) as failed:
        stage.run(task, **instance)
    return str(failed.value)


SOURCES = {
    "missing": (None, ["/nowhere/items.jsonl", "does not exist", "check the path"]),
    "empty": (b"", ["items.jsonl", "is empty", "was the task that writes it finished?"]),
    "blank": (b"\n \n\n", ["items.jsonl", "holds no items", "was the task that writes it finished?"]),
    "utf-16": ('{"prompt": "a"}'.encode("utf-16"), ["items.jsonl", "UTF-16", "save it as UTF-8"]),
    "twice": (
        b'{"id":"a","prompt":"1"}\n{"id":"b","prompt":"2"}\n{"id":"a","prompt":"3"}\n',
        ["items.jsonl", "items 0 and 2", "'a'", "Give every row its own id"],
    ),
    "broken": (
        b'{"prompt":"1"}\n{"prompt": oops}\n{"prompt":"3"}\n',
        ["1 of 3 rows", "max_failed=0.1", "line 2", "mend the rows or raise max_failed"],
    ),
}


@pytest.mark.parametrize("make", ["dispatch", "split"])
@pytest.mark.parametrize(("content", "said"), SOURCES.values(), ids=SOURCES)
def test_a_source_that_cannot_be_used(stage, make, content, said):
    path = "/nowhere/items.jsonl" if content is None else stage.write("items.jsonl", content)
    message = refusal(stage, getattr(stage, make)(source=path))
    assert [words for words in said if words not in message] == [], message


@pytest.mark.parametrize(
    ("make", "source", "said"),
    [
        ("dispatch", None, "Neither chunk nor source is set; give a path"),
        ("dispatch", "", "Neither chunk nor source is set; give a path"),
        ("dispatch", [], "Neither chunk nor source is set; give a path"),
        ("dispatch", "{{ params.nothing }}", "Neither chunk nor source is set; give a path"),
        ("split", None, "source is empty; give a path"),
        ("split", [], "source is empty; give a path"),
        ("dispatch", 7, "source is int 7; give a path or URL, or a list of rows."),
        ("split", {"prompt": "x"}, "source is dict {'prompt': 'x'}; give a path or URL, or a list of rows."),
    ],
)
def test_a_source_that_is_none(stage, make, source, said):
    assert said in refusal(stage, getattr(stage, make)(source=source))


def test_a_folder_and_an_unknown_extension_are_no_sources(stage):
    assert "is a directory; name a file in it" in refusal(stage, stage.dispatch(source=str(stage.folder)))
    path = stage.write("items.txt", "x")
    assert "no known extension; known are .jsonl" in refusal(stage, stage.dispatch(source=path))


ARGUMENTS = {
    "max_attempts": [("{{ params.word }}", "max_attempts is 'abc'; give a whole number from 1"), (0, "is 0")],
    "fail_fast": [("{{ params.nothing }}", "fail_fast is 'None'; give a whole number from 0"), (-1, "is -1")],
    "sample": [("{{ params.word }}", "sample is 'abc'; give a whole number from 1"), (1.5, "is 1.5")],
    "budget_usd": [("{{ params.word }}", "budget_usd is 'abc'; give US dollars above 0"), ("-1", "is '-1'")],
    "max_failed": [
        ("{{ params.five }}", "max_failed is '5'; give a number from 0 to 1"),
        ("nan", "is 'nan'"),
    ],
    "max_wait": [("{{ params.word }}", "max_wait is 'abc'; give a number of seconds"), ("inf", "is 'inf'")],
    "on_existing": [("keep", "on_existing is 'keep'; set it to one of resume, restart, fail")],
    "model_params": [("{{ params.word }}", "model_params is no mapping; give an object such as")],
    "model": [("{{ params.nothing }}", "Neither the task nor connection 'llmbatch_default' names a model")],
    "result_path": [("some/where", "result_path is 'some/where', a relative path; give an absolute path")],
    "output_type": [("no.such:Model", "no.such"), ("{{", "'{{'")],
    "prompt": [
        ("say", "'say'"),
        (None, "prompt is NoneType None; give 'name@version'"),
        ({"user": "x"}, "prompt is dict"),
    ],
}


@pytest.mark.parametrize(
    ("name", "value", "said"), [(name, *case) for name, cases in ARGUMENTS.items() for case in cases]
)
def test_an_argument_that_makes_no_sense(stage, name, value, said):
    assert said in refusal(stage, stage.dispatch(source=stage.items(2), **{name: value}))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("token_budget", "{{ params.word }}", "token_budget is 'abc'; give a whole number from 1"),
        ("token_budget", "{{ params.nothing }}", "token_budget is 'None'; give a whole number from 1"),
        ("max_chunks", "0", "max_chunks is '0'; give a whole number from 1"),
        ("strategy", "random", "strategy is 'random'; set it to one of sequential, balanced"),
    ],
)
def test_an_argument_of_the_split_that_makes_no_sense(stage, name, value, said):
    assert said in refusal(stage, stage.split(source=stage.items(2), **{name: value}))


def test_a_parameter_that_is_not_the_tasks_to_set(stage):
    message = refusal(stage, stage.dispatch(source=stage.items(1), model_params={"stream": True}))
    assert "'stream': replies are read whole; leave it out" in message


def test_a_prompt_version_that_is_not_there_and_where_it_was_looked_for(stage):
    stage.write("prompts/say/1.yaml", NAMED)
    message = refusal(stage, stage.dispatch(source=stage.items(1), prompt="say@7"))
    assert f"The prompt 'say' has no version '7' in {stage.folder}/prompts; it has 1." in message


def test_a_budget_on_a_price_that_nobody_knows(stage):
    message = refusal(stage, stage.dispatch(source=stage.items(1), budget_usd=1))
    assert "budget_usd is 1, but the price of model 'm-1' is not known" in message
    assert "prices_path" in message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": [{"prompt": "other"}]}, "source"),
        ({"model": "m-2"}, "model"),
        ({"prompt": {"system": "other", "user": "{{ text }}"}}, "prompt"),
        ({"output_type": {"type": "object"}}, "schema_digest"),
        ({"model_params": {"seed": 1}}, "rows or params"),
    ],
)
def test_results_that_answer_another_input(stage, change, said):
    path = str(stage.folder / "mine")
    stage.run(stage.dispatch(source=stage.items(2), result_path=path))
    stage.service.reset()
    message = refusal(stage, stage.dispatch(**{"source": stage.items(2), "result_path": path, **change}))
    assert f"The results in {path} answer another input (changed: {said})" in message
    assert "on_existing='restart'" in message


@pytest.mark.parametrize("make", ["dispatch", "split"])
def test_a_result_path_with_a_file_in_its_way(stage, make):
    path = stage.write("taken", "I am a file") + "/results"
    with pytest.raises(StoreError) as failed:
        stage.run(getattr(stage, make)(source=stage.items(2), result_path=path))
    assert path in str(failed.value)
    assert "folder that this user can write" in str(failed.value)


def test_results_without_the_rights_to_them(stage, monkeypatch):
    """The superuser may write everywhere, so the question is answered in the place of the system."""
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(StoreError, match="not writable for this user"):
        stage.run(stage.dispatch(source=stage.items(2)))


@pytest.fixture
def chunk(stage) -> dict:
    """Return the one chunk of a plan for the prompt ``say@1``."""
    stage.write("prompts/say/1.yaml", NAMED)
    (descriptor,) = stage.run(stage.split(source=stage.items(4), prompt="say@1"))
    return descriptor


def test_a_source_that_changed_since_its_plan(stage, chunk):
    path = stage.items(4)
    stage.write("items.jsonl", (stage.folder / "items.jsonl").read_text().replace("number 2", "number 7"))
    message = refusal(stage, stage.dispatch(chunk=chunk, prompt="say@1"))
    assert f"{path} changed since it was split (items 0 to 3)" in message
    assert "clear the split task as well" in message


@pytest.mark.parametrize("change", ["version", "content", "model"])
def test_a_plan_for_another_prompt_or_model(stage, chunk, change):
    stage.write("prompts/say/2.yaml", NAMED)
    if change == "content":
        stage.write("prompts/say/1.yaml", NAMED.replace("terse", "brief"))
    given = {"version": {"prompt": "say@2"}, "content": {"prompt": "say@1"}}
    message = refusal(
        stage, stage.dispatch(chunk=chunk, **given.get(change, {"prompt": "say@1", "model": "m-2"}))
    )
    assert "The plan was made for say@1" in message
    assert "Nothing was sent; clear the split task as well" in message


def test_a_plan_that_is_gone_or_another_one(stage, chunk):
    message = refusal(stage, stage.dispatch(chunk={**chunk, "sha": "0" * 64}, prompt="say@1"))
    assert f"The plan {chunk['plan']} is not the one this chunk belongs to" in message
    shutil.rmtree(stage.results_path)
    message = refusal(stage, stage.dispatch(chunk=chunk, prompt="say@1"))
    assert f"The plan {chunk['plan']} cannot be read" in message
    assert "results_path on storage that all workers reach" in message


@pytest.mark.parametrize("chunk", ["{{ params.word }}", {"plan": "x"}, [1]])
def test_a_chunk_that_is_none(stage, chunk):
    assert "is no chunk; use what LLMBatchSplitOperator returns" in refusal(
        stage, stage.dispatch(chunk=chunk)
    )


@pytest.mark.parametrize(
    ("manifests", "said"),
    [
        ("{{ params.word }}", "manifests is str; give what dispatch tasks return"),
        ([], "There is no manifest to report on"),
        ([{"schema_version": 9}], "got 9"),
        ([None], "got None"),
        (7, "manifests is int; give what dispatch tasks return"),
    ],
)
def test_a_report_of_something_else(stage, manifests, said):
    assert said in refusal(stage, stage.report(manifests=manifests))
