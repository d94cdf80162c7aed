"""The commands as a person calls them: what they say, what they leave, what they refuse."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.cli.definition import get_llmbatch_cli_commands
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.review.inbox import Inbox, Post
from airflow_provider_llmbatch.operators.places import inbox_folder, run_folder
from airflow_provider_llmbatch.operators.stopping import stop_of
from airflow_provider_llmbatch.provider_info import get_provider_info

CANARY = "Ann-Canary"


def call(*words: str) -> int:
    """Parse and run a command as Airflow's command line does, and return its exit code."""
    (group,) = get_llmbatch_cli_commands()
    parser = ArgumentParser()
    actions = parser.add_subparsers(dest="command", required=True)
    for command in group.subcommands:
        one = actions.add_parser(command.name)
        for argument in command.args:
            argument.add_to_parser(one)
        one.set_defaults(func=command.func)
    given = parser.parse_args(words)
    try:
        given.func(given)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture
def run_in(airflow_db):
    """Return a function that gives a run of the DAG ``d`` a state in Airflow's database."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    made = []

    def _set(run_id: str, state: str) -> None:
        with create_session() as session:
            session.query(DagRun).filter(DagRun.run_id == run_id).delete()
            run = DagRun(dag_id="d", run_id=run_id, run_type="manual", state=state)
            run.run_after = datetime.now(UTC)
            session.add(run)
            made.append(run_id)

    yield _set
    with create_session() as session:
        session.query(DagRun).filter(DagRun.run_id.in_(made)).delete()


@pytest.fixture
def batch(stage, setting, airflow_db):
    """Return a stage after a run of two tasks with an export, a report and five items, two of them Ann's."""
    source = stage.write(
        "items.jsonl",
        "".join(
            json.dumps(
                {"id": f"i{n}", "vars": {"text": f"n {n}"}, "metadata": {"who": CANARY if n < 2 else "Bob"}}
            )
            + "\n"
            for n in range(5)
        ),
    )
    manifest = stage.run(stage.dispatch(source=source))
    stage.run(export(stage, manifest))
    stage.run(stage.report(manifests=manifest))
    return stage


def export(stage, manifest: Any):
    from airflow_provider_llmbatch.operators.export import LLMBatchExportOperator

    return LLMBatchExportOperator(task_id="e", dag=stage.dag(), manifests=manifest, format="csv")


def files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file())


def holds(path: Path, text: str) -> bool:
    return any(text.encode() in file.read_bytes() for file in files(path))


def test_a_run_is_deleted_with_all_that_its_tasks_left_and_no_other_run(batch, capsys):
    other = batch.run(batch.dispatch(source=batch.items(2)), run_id="other")
    assert call("delete", "--dag", "d", "--run", "r", "--dry-run") == 0
    said = capsys.readouterr().out
    assert "part-00000" in said
    assert "results.csv" in said
    assert (batch.results_path / "d" / "r").exists()
    assert call("delete", "--dag", "d", "--run", "r", "--yes") == 0
    assert capsys.readouterr().out.splitlines()[:-1] == said.splitlines()[:-1]
    assert not (batch.results_path / "d" / "r").exists()
    assert files(Path(other["result_path"]))
    assert call("delete", "--dag", "d", "--run", "r", "--yes") == 0
    assert "0 files" in capsys.readouterr().out


def test_the_review_queues_of_a_deleted_run_are_off_the_list_and_others_on_it(batch):
    inbox = Inbox(open_folder(inbox_folder(str(batch.results_path))))
    posts = [
        Post(dag_id="d", run_id=run, task_id="review", map_index=-1, opened_at=1.0) for run in ("r", "other")
    ]
    inbox.put(posts[0], "done")
    inbox.put(posts[1], "open")
    assert call("delete", "-d", "d", "-r", "r", "-y") == 0
    assert inbox.posts("open", "done") == posts[1:]


def test_results_elsewhere_are_named_and_deleted_by_their_path(batch, tmp_path, capsys):
    elsewhere = tmp_path / "elsewhere"
    batch.run(batch.dispatch(source=batch.items(2), result_path=str(elsewhere), task_id="x"))
    assert call("delete", "-d", "d", "-r", "r", "-y") == 0
    assert f"--result-path {elsewhere}" in capsys.readouterr().out
    assert files(elsewhere)
    assert call("delete", "--result-path", str(elsewhere), "-y") == 0
    assert not elsewhere.exists()


def test_what_is_kept_of_a_person_is_erased_wherever_the_run_has_it(batch, tmp_path, capsys):
    elsewhere = tmp_path / "elsewhere"
    manifest = batch.run(
        batch.dispatch(source=str(tmp_path / "items.jsonl"), result_path=str(elsewhere), task_id="x")
    )
    counts = {task: len(batch.rows(task)) for task in ("t",)}
    assert call("delete", "-d", "d", "-r", "r", "--subject", f"who={CANARY}", "-y") == 0
    said = capsys.readouterr().out
    for place in (batch.results_path, elsewhere):
        assert not holds(place, CANARY)
        assert not holds(place, '"i0"')
        assert holds(place, '"i2"')
    assert "results.csv  2 rows" in said
    assert [row.outcome.value for row in batch.rows()] == ["skipped"] * 2 + ["ok"] * 3
    assert {"t": len(batch.rows("t"))} == counts
    sent = len(batch.service.arrivals())
    again = batch.run(
        batch.dispatch(source=str(tmp_path / "items.jsonl"), result_path=str(elsewhere), task_id="x")
    )
    assert (len(batch.service.arrivals()), again["counts"]) == (sent, {"skipped": 2, "ok": 3})
    assert manifest["counts"] == {"ok": 5}


def test_single_items_are_erased_by_their_ids(batch):
    assert call("delete", "-d", "d", "-r", "r", "--item-id", "i1", "--item-id", "i3", "-y") == 0
    assert [row.outcome.value for row in batch.rows()] == ["ok", "skipped", "ok", "skipped", "ok"]


@pytest.mark.parametrize("state", ["queued", "running"])
@pytest.mark.parametrize("what", [(), ("--item-id", "i1")])
def test_nothing_is_deleted_while_the_run_is_under_way(batch, run_in, capsys, state, what):
    run_in("r", state)
    for where in (("-d", "d", "-r", "r"), ("--result-path", str(batch.results_path / "d"))):
        before = [(file, file.read_bytes()) for file in files(batch.results_path)]
        assert call("delete", *where, *what, "-y") == 1
        assert f"run r of d is {state}" in capsys.readouterr().err
        assert [(file, file.read_bytes()) for file in files(batch.results_path)] == before
    run_in("r", "success")
    assert call("delete", "-d", "d", "-r", "r", *what, "-y") == 0


def test_a_run_that_reuses_an_answer_asks_again_once_the_answer_is_deleted(batch):
    def ask(run_id: str) -> int:
        sent = len(batch.service.arrivals())
        batch.run(
            batch.dispatch(source=batch.items(3, "three.jsonl"), reuse=True, task_id="u"), run_id=run_id
        )
        return len(batch.service.arrivals()) - sent

    assert [ask("first"), ask("second")] == [3, 0]
    assert call("delete", "-d", "d", "-r", "first", "-y") == 0
    assert ask("third") == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--dag and --run, or --result-path"),
        (("-d", "d"), "give both"),
        (("-r", "r"), "give both"),
        (("-d", "d", "-r", "r", "--result-path", "/x"), "--dag and --run, or --result-path"),
        (("-d", "d", "-r", "r", "--subject", CANARY), "KEY=VALUE"),
        (("-d", "d", "-r", "r", "--subject", "who=nobody"), "nothing was erased"),
        (("-d", "d", "-r", "r"), "--yes"),
    ],
)
def test_what_is_not_clear_is_refused_and_nothing_is_touched(batch, capsys, monkeypatch, words, says):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    before = files(batch.results_path)
    assert call("delete", *words) == 1
    assert says in capsys.readouterr().err
    assert files(batch.results_path) == before


def test_no_name_of_a_run_leads_out_of_the_results(tmp_path):
    assert run_folder("/r", "..", "a/../b") == "/r/%2E%2E/a%2F..%2Fb"


def test_a_run_is_stopped_and_let_go_on(setting, capsys):
    assert call("stop", "d", "r", "--by", "ann", "--why", "wrong prompt") == 0
    stop = stop_of("d", "r")
    assert stop is not None
    assert (stop.by, stop.why) == ("ann", "wrong prompt")
    assert call("go-on", "d", "r") == 0
    assert stop_of("d", "r") is None
    assert "may send again" in capsys.readouterr().out
    assert call("go-on", "d", "r") == 0
    assert "Nobody has stopped" in capsys.readouterr().out
    assert call("stop", "d", "r", "--why", "x" * 201) == 1


def test_what_is_parked_is_told_and_opened_by_a_person(setting, found, capsys):
    from airflow_provider_llmbatch.engine.state.protocols import Gate
    from airflow_provider_llmbatch.operators.bridge import Bridge
    from airflow_provider_llmbatch.operators.surroundings import open_state
    from airflow_provider_llmbatch.settings import load_settings

    async def park() -> None:
        state = open_state(load_settings())
        await state.park(Gate(name="endpoint/http://h/v1/m", sticky=True), "HTTP 503")
        await state.close()

    Bridge().run(park)
    (told,) = found("parked")
    assert (told.level, "HTTP 503" in told.found, "until a person" in told.found) == ("warn", True, True)
    assert told.remedy.endswith("airflow llmbatch unpark endpoint/http://h/v1/m")
    assert call("unpark", "endpoint/nothing") == 1
    assert "endpoint/http://h/v1/m" in capsys.readouterr().err
    assert call("unpark", "endpoint/http://h/v1/m") == 0
    assert [one.level for one in found("parked")] == ["ok"]


def test_airflows_command_line_has_the_group_and_its_exit_code_tells(tmp_path, service):
    connection = {"conn_type": "llmbatch", "host": service.url, "password": "sk-x", "extra": {"x": 1}}
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW_CONN_LLMBATCH_DEFAULT": json.dumps(connection),
        "AIRFLOW__LLMBATCH__RESULTS_PATH": str(tmp_path / "results"),
    }
    command = [str(Path(sys.executable).parent / "airflow"), "llmbatch", "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (0, True), done.stdout + done.stderr
    assert "sk-x" not in done.stdout + done.stderr


def test_connections_of_airflows_database_are_looked_at(setting, airflow_db, service, capfd):
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(
            Connection(conn_id="stored", conn_type="llmbatch", host=service.url, password="sk-canary")
        )
    assert call("doctor", "--conn-id", "stored") == 0
    said = capfd.readouterr().out
    assert f"endpoint stored    {service.url} is reachable" in " ".join(said.split(" "))
    assert "canary" not in said


def test_the_exit_code_of_a_doctor_who_finds_a_failure_is_one(setting, connect, service, capfd):
    connect(service.url)
    setting(max_wait="soon")
    assert call("doctor", "--json") == 1
    assert json.loads(capfd.readouterr().out)["ok"] is False


def test_the_command_line_of_airflow_loads_nothing_of_ours_but_the_arguments():
    assert get_provider_info()["cli"] == [
        f"{get_llmbatch_cli_commands.__module__}.{get_llmbatch_cli_commands.__name__}"
    ]
    code = (
        "import sys, airflow.cli.cli_config, airflow_provider_llmbatch; before = set(sys.modules)\n"
        "from airflow_provider_llmbatch.cli.definition import get_llmbatch_cli_commands as get\n"
        "get(); print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "airflow_provider_llmbatch.cli",
        "airflow_provider_llmbatch.cli.definition",
    ]
