"""What the demo shows of a run's log."""

from __future__ import annotations

import json

from airflow_provider_llmbatch.simulator.demo import Demo, Show

OURS = "airflow.task.operators.airflow_provider_llmbatch.operators.dispatch.LLMBatchDispatchOperator"


def shown(*entries: dict | str) -> list[str]:
    show = Show()
    lines = (entry if isinstance(entry, str) else json.dumps(entry) for entry in entries)
    return [words for line in lines for words in show.lines(line)]


def begins(task: str, map_index: int = -1) -> dict:
    return {
        "event": f"[DAG TEST] starting task_id={task} map_index={map_index}",
        "logger": "x",
        "level": "info",
    }


def test_lines_of_our_tasks_are_shown_whole_under_the_name_of_their_task():
    words = " ".join(f"word{n}" for n in range(40))
    lines = shown(
        {"event": "Filling up the DagBag", "logger": "airflow.dag_processing", "level": "info"},
        begins("split"),
        {"event": "60 items", "logger": OURS, "level": "info"},
        begins("dispatch", 2),
        {"event": words, "logger": OURS, "level": "info"},
    )
    assert lines[0] == "  split        60 items"
    assert lines[1].startswith("  dispatch[2]  word0 ")
    assert " ".join(" ".join(lines[1:]).split()[1:]) == words
    assert max(map(len, lines)) <= 110


def test_errors_are_shown_with_their_cause_whoever_logs_them():
    cause = {"exc_type": "ValueError", "exc_value": "no such thing"}
    lines = shown(
        begins("report"),
        {"event": "Task failed", "logger": "task", "level": "error", "exception": [cause]},
        {"event": "Boom", "logger": None, "level": "critical"},
    )
    assert lines == [
        "  report       error: Task failed",
        "  report       ValueError: no such thing",
        "  report       critical: Boom",
    ]


def test_the_report_and_what_is_no_entry_are_left_out():
    assert shown("plain text", "[1]", "{}", {"event": "Report:\n# x", "logger": OURS, "level": "info"}) == []


def test_settings_of_another_airflow_do_not_reach_the_demo(monkeypatch):
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://production")
    demo = Demo(name="demo", connection={"conn_type": "llmbatch"}, conf={})
    environment = demo._environment()
    assert "postgresql://production" not in environment.values()
    assert environment["AIRFLOW_HOME"].endswith("/build/demo")


def test_the_key_is_not_in_what_is_printed_of_a_demo():
    assert "sk-canary" not in repr(Demo(name="demo", connection={"password": "sk-canary"}, conf={}))
