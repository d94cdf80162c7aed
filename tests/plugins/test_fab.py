"""Permissions by DAG: the simple auth manager knows none, that of Flask AppBuilder does."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def got(airflow_db, tmp_path_factory) -> dict[str, dict[str, Any]]:
    """Return status and text of what everybody got."""
    home = tmp_path_factory.mktemp("fab")
    with closing(sqlite3.connect(airflow_db)) as made, closing(sqlite3.connect(home / "airflow.db")) as own:
        made.backup(own)
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__AUTH_MANAGER": "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager",
        "AIRFLOW__LLMBATCH__RESULTS_PATH": str(home / "results"),
        "AIRFLOW_CONN_LLM": json.dumps(
            {"conn_type": "llmbatch", "host": "http://llm/v1", "password": "sk-x"}
        ),
        "_AIRFLOW_PROCESS_CONTEXT": "server",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "tests.plugins.fab", str(home / "results")]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def statuses(got: dict[str, list[Any]]) -> dict[str, int]:
    return {what: status for what, (status, _) in got.items()}


def test_anonymous_callers_get_nothing(got):
    assert set(statuses(got["nobody"]).values()) == {401}


def test_a_reader_of_the_dag_reads_and_does_not_decide(got):
    assert statuses(got["reader"]) == {
        **{"queues": 200, "queue": 200, "tickets": 200, "ticket": 200, "export": 200},
        **{"nowhere": 403, "connection": 403, "decide": 403},
        **{"rollouts": 200, "rollout": 200, "pairs": 200, "pause": 403},
    }
    assert json.loads(got["reader"]["queues"][1])["total"] == 1
    assert json.loads(got["reader"]["queue"][1])["may_decide"] is False
    assert json.loads(got["reader"]["rollout"][1])["may_act"] is False


def test_who_may_answer_for_the_dag_decides(got):
    assert statuses(got["decider"])["decide"] == 200
    assert json.loads(got["decider"]["queue"][1])["may_decide"] is True


def test_who_may_edit_the_dag_pauses_its_rollouts(got):
    assert json.loads(got["decider"]["rollout"][1])["may_act"] is True
    assert json.loads(got["decider"]["pause"][1])["state"] == "paused"


def test_who_has_another_dag_sees_nothing_of_this_one_ids_included(got):
    stranger = got["stranger"]
    assert statuses(stranger) == {
        **{"queues": 200, "queue": 403, "tickets": 403, "ticket": 403, "export": 403},
        **{"nowhere": 403, "connection": 403, "decide": 403},
        **{"rollouts": 200, "rollout": 403, "pairs": 403, "pause": 403},
    }
    assert json.loads(stranger["queues"][1]) == {"total": 0, "queues": []}
    assert json.loads(stranger["rollouts"][1]) == {"total": 0, "rollouts": []}
    # What is there and what is not look the same.
    assert stranger["queue"] == stranger["nowhere"]
    assert not any("billing" in text or "run-17" in text for _, text in stranger.values())


def test_connections_are_for_those_who_may_read_them(got):
    assert statuses(got["operator"])["connection"] == 200
    assert json.loads(got["operator"]["queues"][1])["total"] == 0
