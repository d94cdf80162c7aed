"""
Runs of the engine against llama.cpp's server, with a small model: ``make interop``, not part of the tests.

LLMBATCH_LLAMA names the interpreter of the environment that ``make demo-model`` sets up.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.simulator.demo_model import CONTEXT, EXTRA, MODEL, join, served
from tests.engine.rehearsal import Done, dispatched, job, rows

PARAMS = {"max_tokens": 40, "temperature": 0.0, "repeat_penalty": 1.3}
SCHEMA = {
    "type": "object",
    "properties": {"label": {"enum": ["good", "bad"]}},
    "required": ["label"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("llama")
    python = os.environ["LLMBATCH_LLAMA"]
    weights, _ = join(python, place)
    with served(python, weights, place / "server.log") as url:
        yield url


async def ran(folder: Path, url: str, source: Any, **told: Any) -> Done:
    extra = {**EXTRA, "timeout_s": 120.0, **told.pop("extra", {})}
    usual = {"params": PARAMS, "policy": {"max_attempts": 2}, "model": MODEL}
    return await dispatched(job(source, url, folder, extra=extra, **{**usual, **told}))


async def test_text_is_read_with_its_usage_or_is_known_to_be_cut(server: str, tmp_path: Path):
    done = await ran(tmp_path, server, rows(3))
    assert set(done.outcomes) <= {Outcome.OK, Outcome.TRUNCATED}
    for row in done.results:
        assert (row.output is None) == (row.finish_reason == "length")
        assert row.usage.prompt > 0
        assert not row.usage.estimated
        assert row.served_model == MODEL


async def test_a_schema_is_kept_to(server: str, tmp_path: Path):
    done = await ran(tmp_path, server, rows(3), output_type=SCHEMA)
    assert done.outcomes == {Outcome.OK: 3}
    assert {row.output["label"] for row in done.results} <= {"good", "bad"}


async def test_a_prompt_that_does_not_fit_is_too_long_by_the_servers_words(server: str, tmp_path: Path):
    long = [{"id": "long", "prompt": "word " * (2 * CONTEXT)}, {"id": "short", "prompt": "Say yes."}]
    # Without a window of ours to stop it, the request goes out.
    done = await ran(tmp_path, server, long, extra={"context_window": None})
    assert done.results[0].outcome is Outcome.TOO_LONG
    assert done.results[0].attempts == 1
    assert done.results[1].outcome in (Outcome.OK, Outcome.TRUNCATED)


async def test_a_parameter_of_a_wrong_type_is_a_bad_request_that_is_not_sent_again(
    server: str, tmp_path: Path
):
    wrong = [{"id": "wrong", "prompt": "Say yes.", "params": {"temperature": "hot"}}]
    done = await ran(tmp_path, server, wrong)
    assert done.outcomes == {Outcome.BAD_REQUEST: 1}
    assert done.results[0].attempts == 1
    assert "temperature" in done.results[0].error.message
