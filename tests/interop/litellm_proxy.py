"""
Runs of the engine against LiteLLM's proxy, which answers by itself: ``make interop``, not part of the tests.

LLMBATCH_LITELLM names the ``litellm`` program of an environment that has ``litellm[proxy]``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_provider_llmbatch.engine.items import Outcome
from tests.engine.rehearsal import Done, dispatched, job, rows
from tests.interop.serving import free_port, served

KEY = "sk-interop-0123456789"
SCHEMA = {
    "type": "object",
    "properties": {"label": {"type": "string"}, "score": {"type": "number"}},
    "required": ["label", "score"],
}
FENCED = '```json\n{"label": "ok", "score": 0.5}\n```'
#: what each model answers, in the proxy's own words for made-up replies
REPLIES = {
    "fine": "fine",
    "labels": FENCED,
    "throttled": "litellm.RateLimitError",
    "broken": "litellm.InternalServerError",
    "small": "litellm.ContextWindowExceededError",
}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("litellm")
    models: list[dict[str, Any]] = [
        {
            "model_name": name,
            "litellm_params": {"model": "openai/m", "api_key": "none", "mock_response": reply},
        }
        for name, reply in REPLIES.items()
    ]
    # Nobody listens there.
    away = {"model": "openai/m", "api_key": "none", "api_base": "http://127.0.0.1:9/v1"}
    models.append({"model_name": "away", "litellm_params": away})
    told = {
        "model_list": models,
        "general_settings": {"master_key": KEY},
        "litellm_settings": {"num_retries": 0, "telemetry": False},
    }
    config = place / "config.yaml"
    config.write_text(yaml.safe_dump(told))
    port = free_port()
    program = os.environ["LLMBATCH_LITELLM"]
    command = [program, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    log = place / "proxy.log"
    with served(
        command, log, port=port, ready="/health/liveliness", LITELLM_LOCAL_MODEL_COST_MAP="True"
    ) as url:
        yield url


async def ran(folder: Path, url: str, model: str, count: int = 5, **told: Any) -> Done:
    usual: dict[str, Any] = {"key": KEY, "policy": {"max_attempts": 2, "max_wait_s": 5.0}}
    return await dispatched(job(rows(count), url, folder, model=model, **{**usual, **told}))


async def test_replies_are_read_with_usage_model_and_the_id_of_the_call(proxy: str, tmp_path: Path):
    done = await ran(tmp_path, proxy, "fine", 40)
    assert done.outcomes == {Outcome.OK: 40}
    row = done.results[0]
    assert (row.output, row.served_model, row.finish_reason) == ("fine", "fine", "stop")
    assert row.usage.prompt > 0
    assert not row.usage.estimated
    assert len({row.request_id for row in done.results}) == 40


async def test_json_in_a_fence_is_taken_out(proxy: str, tmp_path: Path):
    done = await ran(tmp_path, proxy, "labels", output_type=SCHEMA)
    assert done.outcomes == {Outcome.OK: 5}
    assert (done.results[0].output, done.results[0].salvage) == ({"label": "ok", "score": 0.5}, "fence")


@pytest.mark.parametrize(
    ("model", "outcome", "kind", "attempts"),
    [
        ("small", Outcome.TOO_LONG, "too_long", 1),
        ("broken", Outcome.EXHAUSTED, "http", 2),
        ("away", Outcome.EXHAUSTED, "http", 2),
    ],
)
async def test_each_error_ends_in_its_outcome(
    proxy: str, tmp_path: Path, model: str, outcome: Outcome, kind: str, attempts: int
):
    done = await ran(tmp_path, proxy, model, 1)
    assert done.outcomes == {outcome: 1}
    assert done.kinds == {kind: 1}
    assert done.results[0].attempts == attempts


async def test_throttling_is_waited_out_and_uses_no_try(proxy: str, tmp_path: Path):
    done = await ran(tmp_path, proxy, "throttled", 1, policy={"max_attempts": 1, "max_wait_s": 3.0})
    assert done.kinds == {"max_wait": 1}
    assert done.results[0].attempts > 1


async def test_a_wrong_key_and_a_wrong_model_stop_the_run(proxy: str, tmp_path: Path):
    wrong_key = await ran(tmp_path / "key", proxy, "fine", 20, key="sk-not-the-key-at-all")
    assert wrong_key.outcomes == {Outcome.UNSENT: 20}
    assert "No credential is left" in wrong_key.manifest.reason
    wrong_model = await ran(tmp_path / "model", proxy, "no-such-model", 20)
    assert wrong_model.outcomes == {Outcome.UNSENT: 20}
    assert "Invalid model name" in wrong_model.manifest.reason
