"""A connection may let a request that the service throttles take the answer that it has had before."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_provider_llmbatch.engine.connection import parse
from airflow_provider_llmbatch.engine.items import Result, RunRef
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.observe.log import LogObserver
from airflow_provider_llmbatch.engine.prompt import inline_prompt
from airflow_provider_llmbatch.engine.results import rows
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.source import open_source
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.engine.state.sqlite.claims import SqliteClaims
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.engine.validate.schema import output_schema
from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.simulator.arrivals import Arrival, read_arrivals
from airflow_provider_llmbatch.simulator.server import running
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings

ITEMS = 12


class Bench:
    """A service, a state, and runs of the same questions under other names."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self.state = SqliteState(":memory:")

    async def dispatch(self, name: str, cache: str, params: Mapping[str, Any] | None = None) -> Manifest:
        job = Job(
            source=open_source([{"id": f"{name}-{n}", "prompt": f"question {n}"} for n in range(ITEMS)]),
            prompt=inline_prompt("Be brief.", None),
            connection=parse(
                "sim",
                host=self._url,
                password="sk-cached",
                extra={
                    "prices": {"sim-small": {"input": "1", "output": "4"}},
                    "max_in_flight": 4,
                    "cache_on_throttle": cache,
                },
            ),
            model="sim-small",
            schema=output_schema(None),
            result_path=str(self._folder / name),
            run=RunRef(dag="d", run=name, task="t"),
            params=params or {},
        )
        log = LogObserver(logging.getLogger("test"), ITEMS)
        claims = SqliteClaims(self.state)
        return await run(
            job,
            whole(job),
            state=self.state,
            observe=log,
            note=logging.info,
            claims=claims,
            reuse_when="throttled",
        )

    def rows(self, name: str) -> list[Result]:
        return list(results(open_folder(str(self._folder / name))))

    def throttle(self, calls: int) -> None:
        """Refuse so many calls, each with a wait of a fifth of a second."""
        refuse = {"status": 429, "error": {"message": "slow down"}, "headers": {"retry-after-ms": "200"}}
        rules = {"rules": [{"match": {"first": calls}, "reply": refuse}]}
        httpx.post(f"{self._url.removesuffix('/v1')}/_sim/scenario", json=rules).raise_for_status()

    def arrivals(self) -> list[Arrival]:
        return read_arrivals(httpx.get(f"{self._url.removesuffix('/v1')}/_sim/arrivals").json())


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    with running(SimulatorSettings(latency_s=0.0)) as url:
        found = Bench(url, tmp_path)
        yield found
        await found.state.close()


async def test_a_throttled_request_takes_the_answer_of_an_earlier_run_and_its_row_says_so(bench: Bench):
    first = await bench.dispatch("a", "unsampled")
    bench.throttle(1)
    second = await bench.dispatch("b", "unsampled")
    earlier, later = bench.rows("a"), bench.rows("b")
    reused = [row for row in later if row.saved_usd is not None]
    assert [row.output for row in earlier] == [row.output for row in later]
    assert len(reused) == 1
    assert (reused[0].attempts, reused[0].usage.total, reused[0].cost.usd) == (1, 0, 0)
    assert reused[0].saved_usd == earlier[reused[0].index].cost.usd > 0
    assert second.saved_usd == reused[0].saved_usd
    assert second.cost.usd + second.saved_usd == first.cost.usd
    assert len([a for a in bench.arrivals() if a.status == 200]) == 2 * ITEMS - 1


async def test_a_service_that_throttles_everything_is_not_waited_for_when_all_is_known(bench: Bench):
    await bench.dispatch("a", "unsampled")
    bench.throttle(10_000)
    second = await bench.dispatch("b", "unsampled")
    assert second.counts == {"ok": ITEMS}
    assert second.cost.usd == 0
    assert len(bench.arrivals()) == 2 * ITEMS, "each item asks once, and nothing waits for a second try"


async def test_unless_the_service_throttles_every_request_is_sent(bench: Bench):
    await bench.dispatch("a", "unsampled")
    second = await bench.dispatch("b", "unsampled")
    assert second.saved_usd == 0
    assert len(bench.arrivals()) == 2 * ITEMS


async def test_what_nobody_has_answered_is_waited_for(bench: Bench):
    bench.throttle(3)
    first = await bench.dispatch("a", "unsampled")
    assert first.counts == {"ok": ITEMS}
    assert first.saved_usd == 0
    assert len(bench.arrivals()) == ITEMS + 3


@pytest.mark.parametrize(
    ("cache", "params", "reused"),
    [
        ("unsampled", {"temperature": 0.7}, 0),
        ("unsampled", {"temperature": 0.7, "seed": 1}, 2),
        ("unsampled", {"temperature": 0}, 2),
        ("always", {"temperature": 0.7}, 2),
    ],
)
async def test_a_request_that_asks_for_variety_gets_it_unless_the_connection_says_otherwise(
    bench: Bench, cache: str, params: Mapping[str, Any], reused: int
):
    await bench.dispatch("a", cache, params)
    bench.throttle(2)
    second = await bench.dispatch("b", cache, params)
    assert second.counts == {"ok": ITEMS}
    assert sum(row.saved_usd is not None for row in bench.rows("b")) == reused


async def test_an_answer_that_was_taken_over_is_handed_on_with_what_it_had_cost_at_first(bench: Bench):
    await bench.dispatch("a", "unsampled")
    bench.throttle(10_000)
    for name in "bc":
        await bench.dispatch(name, "unsampled")
    paid, handed_on = bench.rows("a"), bench.rows("c")
    assert [row.saved_usd for row in handed_on] == [row.cost.usd for row in paid]


async def test_a_row_that_was_taken_over_is_read_as_it_was_written(bench: Bench):
    await bench.dispatch("a", "unsampled")
    bench.throttle(10_000)
    await bench.dispatch("b", "unsampled")
    row = bench.rows("b")[0]
    written = rows.to_row(row)
    assert written["reused"] == {"saved_usd": format(row.saved_usd or 0, "f")}
    assert rows.from_row(written).saved_usd == row.saved_usd
    assert "reused" not in rows.to_row(bench.rows("a")[0])


def test_another_word_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigurationError, match="'never', 'unsampled' or 'always'"):
        parse("sim", host="http://h/v1", password="sk-x", extra={"cache_on_throttle": "sometimes"})
