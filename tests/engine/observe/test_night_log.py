"""What an engineer reads after a bad night: short, one line for each kind, and nothing that is secret."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_provider_llmbatch.engine.observe.log import LogObserver
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from tests.engine.observe.test_log import Lines
from tests.engine.rehearsal import KEY, job, rows, simulated

NIGHT = [
    {"match": {"every": 3}, "reply": {"status": 503, "error": {"message": "overloaded"}}},
    {"match": {"every": 3}, "reply": {"status": 400, "error": {"message": "no such thing", "code": "odd"}}},
    {"match": {"every": 3}, "reply": {"reset": "before"}},
    {"match": {"every": 4}, "reply": {"body": "<html><h1>Bad gateway</h1></html>"}},
    {"match": {"every": 4}, "reply": {"refusal": "I will not say anything about row 0001."}},
    {
        "match": {"every": 4},
        "reply": {"status": 408, "error": {"message": "slow"}, "echo_authorization": True},
    },
]


async def test_a_night_of_faults_is_a_page_with_a_line_for_each_kind(tmp_path: Path):
    """P22, P90."""
    lines, state = Lines(), SqliteState(":memory:")
    with simulated(*NIGHT) as service:
        work = job(rows(400), service.url, tmp_path, policy={"max_attempts": 4})
        log = LogObserver(lines, total=400, interval_s=1e9)
        manifest = await run(work, whole(work), state=state, observe=log, note=lines.info)
    await state.close()
    assert sum(manifest.counts.values()) == 400
    assert len(lines.all) < 25
    ends = [line for line in lines.all if " calls failed (" in line]
    kinds = [re.sub(r"^[\d,]+ calls failed \(([^)]*)\).*", r"\1", line) for line in ends]
    assert sorted(kinds) == ["http 400 odd", "http 408", "http 503", "malformed 200", "refusal", "reset"]
    assert all(" — " in line for line in ends), "each has its cause and remedy"
    counts = [int(line.split()[0].replace(",", "")) for line in ends]
    assert counts == sorted(counts, reverse=True)
    assert manifest.commonest_error.startswith(f"{counts[0]} x {kinds[0]}: ")
    text = "\n".join(lines.all)
    assert KEY not in text
    assert "row 0" not in text, "neither prompts nor replies are for the log"
