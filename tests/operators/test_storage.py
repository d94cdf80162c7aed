"""Sources, plans and results on object stores, with and without a connection in the URL."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import fsspec
import pytest
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.io import attach

from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.operators.storage import filesystem_of, open_folder

ITEMS = 6


@pytest.fixture
def files() -> Any:
    """Return a file system that only connection ``my_store`` leads to."""
    return fsspec.filesystem("memory")


@pytest.fixture
def url(files: Any) -> str:
    attach(protocol="memory", conn_id="my_store", fs=files)
    return f"memory://my_store@{uuid.uuid4().hex}"


@pytest.fixture
def source(files: Any, url: str) -> str:
    lines = [json.dumps({"id": f"i{n}", "vars": {"text": f"number {n}"}}) for n in range(ITEMS)]
    files.pipe_file(url.replace("my_store@", "") + "/items.jsonl", "\n".join(lines).encode())
    return f"{url}/items.jsonl"


def test_a_batch_lives_wholly_behind_a_connection(stage, url: str, source: str, files: Any):
    chunks = stage.run(stage.split(source=source, token_budget=200, result_path=f"{url}/plan"))
    assert len(chunks) > 1
    assert chunks[0]["plan"] == f"{url}/plan/plan.json"
    manifests = [
        stage.run(stage.dispatch(chunk=chunk, result_path=f"{url}/results"), map_index=number)
        for number, chunk in enumerate(chunks)
    ]
    assert {manifest["result_path"] for manifest in manifests} == {f"{url}/results"}
    report = stage.run(stage.report(manifests=manifests, plan=chunks, result_path=f"{url}/report"))
    assert (report["items"], report["counts"]) == (ITEMS, {"ok": ITEMS})
    assert [one.id for one in results(open_folder(f"{url}/results"))] == [f"i{n}" for n in range(ITEMS)]
    stored = files.ls(url.replace("my_store@", "") + "/results", detail=False)
    assert sum("/part-" in name for name in stored) == len(chunks)


def test_a_second_run_of_the_same_task_pays_nothing(stage, url: str, source: str):
    for _ in range(2):
        manifest = stage.run(stage.dispatch(source=source, result_path=f"{url}/results"))
    assert manifest["counts"] == {"ok": ITEMS}
    assert len(stage.service.arrivals()) == ITEMS


@pytest.mark.parametrize("mode", ["restart", "fail"])
def test_a_retry_resumes_and_a_cleared_task_obeys_on_existing(
    mode: str, stage, source: str, url: str, play_once: Callable[[], None]
):
    play_once()
    task = {"source": source, "result_path": f"{url}/results", "on_existing": mode, "max_attempts": 1}
    with pytest.raises(Exception, match="retry sends 1 of them again"):
        stage.run(stage.dispatch(**task, max_failed=0))
    stage.run(stage.dispatch(**task), try_number=2)
    assert len(stage.service.arrivals()) == ITEMS + 1

    if mode == "restart":
        stage.run(stage.dispatch(**task), try_number=3, max_tries=3)
        assert len(stage.service.arrivals()) == 2 * ITEMS + 1
    else:
        with pytest.raises(AirflowFailException, match="on_existing is 'fail'"):
            stage.run(stage.dispatch(**task), try_number=3, max_tries=3)


@pytest.fixture
def play_once(stage) -> Callable[[], None]:
    """Return what makes the first call about number 3 fail in a way that a retry may mend."""
    fault = {"match": {"contains": "number 3", "attempt": 1}, "reply": {"status": 503}}
    return lambda: stage.service.play(fault)


def test_a_connection_that_nothing_opens_says_what_to_do(stage):
    with pytest.raises(ConfigurationError, match=r"connection 'my_bucket'.*Unsupported filesystem: .nowhere"):
        filesystem_of("nowhere://my_bucket@bucket/results")
    with pytest.raises(AirflowFailException, match="Make the connection, install the provider"):
        stage.run(stage.dispatch(source=stage.items(1), result_path="nowhere://my_bucket@bucket/results"))


@pytest.mark.parametrize(
    "location", ["/data/results", "file:///data/results", "memory://results", "s3://a/b@c"]
)
def test_a_location_without_a_connection_needs_none(location: str):
    assert filesystem_of(location) is None


def test_a_file_url_serves_one_host_like_a_path(stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.delenv("AIRFLOW__LLMBATCH__SINGLE_HOST", raising=False)
    for place in (str(stage.folder / "results"), f"file://{stage.folder}/results"):
        with pytest.raises(AirflowFailException, match="serves one host, but the executor is CeleryExecutor"):
            stage.run(stage.dispatch(source=stage.items(1), result_path=place))
