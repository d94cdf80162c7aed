"""An Airflow of its own: scheduler and API server as processes, tasks under a real supervisor."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

#: Seconds in which a component has to be there, or a task to get somewhere; only a broken one takes so long.
PATIENCE_S = 90.0


def until(there: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> Any:
    """Look again and again, return what is there in the end, and give up some day."""
    give_up = time.monotonic() + seconds
    while not (found := there()):
        assert time.monotonic() < give_up, f"{what}: not within {seconds:g} s"
        time.sleep(0.05)
    return found


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Installation:
    """Airflow in a folder, and the requests of a user."""

    home: Path
    url: str
    client: httpx.Client
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    #: who may sign in: roles by name, which is the password too; with nobody everybody may do all
    people: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start one of Airflow's commands."""
        with open(self.home / f"{command[0]}.log", "ab") as log:
            started = subprocess.Popen(
                [sys.executable, "-m", "airflow", *command],
                env=self.environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(started)
        return started

    def start_all(self) -> None:
        """Start the API server and the scheduler."""
        self.start("api-server")
        self.start("scheduler")

    def answers(self) -> bool:
        """Whether the API server is there."""
        with suppress(httpx.TransportError):
            return self.client.get(f"{self.url}/api/v2/version").is_success
        return False

    def environment(self) -> dict[str, str]:
        port = self.url.rpartition(":")[2]
        return {
            **os.environ,
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.home / "dags"),
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": str(not self.people),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(map(":".join, self.people.items())),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.home / "passwords.json"),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": port,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        }

    def sign_in(self) -> None:
        """Make the following requests those of an administrator: of the first of the people, if any."""
        if self.people:
            name = next(iter(self.people))
            answer = self.request("POST", "/auth/token", {"username": name, "password": name})
        else:
            answer = self.request("GET", "/auth/token")
        self.client.headers["Authorization"] = f"Bearer {answer['access_token']}"

    def request(self, method: str, path: str, content: Any = None) -> Any:
        """Ask the API as an administrator."""
        answer = self.client.request(method, f"{self.url}{path}", json=content)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if "json" in answer.headers["content-type"] else answer.text

    def trigger(self, dag_id: str, **conf: Any) -> Run:
        started = self.request("POST", f"/api/v2/dags/{dag_id}/dagRuns", {"logical_date": None, "conf": conf})
        return Run(self, dag_id, started["dag_run_id"])

    def end(self) -> None:
        """Kill all that was started, and what that has started."""
        family = []
        for process in self.processes:
            with suppress(psutil.NoSuchProcess):
                parent = psutil.Process(process.pid)
                family += [parent, *parent.children(recursive=True)]
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        for process in self.processes:
            process.wait()
        self.processes.clear()


@dataclass
class Run:
    """A run of a DAG."""

    installation: Installation
    dag_id: str
    run_id: str

    @property
    def path(self) -> str:
        return f"/api/v2/dags/{self.dag_id}/dagRuns/{self.run_id}"

    def instance(self, task_id: str) -> dict[str, Any]:
        return self.installation.request("GET", f"{self.path}/taskInstances/{task_id}")

    def wait_for(self, task_id: str, *states: str) -> dict[str, Any]:
        """Wait until a task is in one of these states, and return its instance."""

        def there() -> Any:
            instance = self.instance(task_id)
            return instance if instance["state"] in states else None

        return until(there, f"{task_id} in {states}")

    def wait_for_exit(self, task_id: str, times: int) -> None:
        """
        Wait until the scheduler has taken note that a task's process has ended so many times.

        A parked task that is woken before is taken for one that was killed, and started anew by Airflow.
        """
        said = ("Received executor event", f"task_id='{task_id}', run_id='{self.run_id}'")

        def noted() -> bool:
            lines = (self.installation.home / "scheduler.log").read_text().splitlines()
            return sum(all(part in line for part in said) for line in lines) >= times

        until(noted, f"end {times} of {task_id}")

    def clear(self, task_id: str) -> None:
        clear = {"dry_run": False, "task_ids": [task_id], "dag_run_id": self.run_id}
        self.installation.request("POST", f"/api/v2/dags/{self.dag_id}/clearTaskInstances", clear)

    def returned(self, task_id: str) -> Any:
        instance = self.instance(task_id)
        path = f"{self.path}/taskInstances/{task_id}/xcomEntries/return_value?stringify=false"
        try:
            return self.installation.request("GET", path)["value"]
        except AssertionError as nothing:
            told = self.log(task_id, instance["try_number"])[-6000:]
            raise AssertionError(
                f"{task_id} is {instance['state']} and returned nothing:\n{told}"
            ) from nothing

    def log(self, task_id: str, try_number: int) -> str:
        return json.dumps(
            self.installation.request("GET", f"{self.path}/taskInstances/{task_id}/logs/{try_number}")
        )


def talking_to(port: int, family: subprocess.Popen[bytes]) -> psutil.Process | None:
    """Return the descendant that has calls open to a port."""
    for process in psutil.Process(family.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if any(link.raddr and link.raddr.port == port for link in process.net_connections("tcp")):
                return process
    return None


@contextmanager
def installed(
    home: Path, database: Path, dag_file: Path, people: Mapping[str, str] | None = None
) -> Iterator[Installation]:
    """
    Run an Airflow with one DAG file, which is called as its DAG.

    :param home: an empty folder.
    :param database: a SQLite file that Airflow has made; it is copied.
    :param dag_file: the folders ``prompts`` and ``data`` beside it come along.
    :param people: roles by name of those who may sign in, an administrator first.
    """
    with closing(sqlite3.connect(database)) as made, closing(sqlite3.connect(home / "airflow.db")) as own:
        made.backup(own)
    (home / "dags").mkdir()
    shutil.copy(dag_file, home / "dags")
    for beside in ("prompts", "data"):
        if (dag_file.parent / beside).exists():
            shutil.copytree(dag_file.parent / beside, home / "dags" / beside)
    (home / "passwords.json").write_text(json.dumps({name: name for name in people or {}}))
    url = f"http://127.0.0.1:{free_port()}"
    with httpx.Client(timeout=30.0) as client:
        airflow = Installation(home, url, client, people=people or {})
        try:
            airflow.start_all()
            assert airflow.start("dags", "reserialize").wait() == 0, (home / "dags.log").read_text()
            until(airflow.answers, "the API server")
            airflow.sign_in()
            # The database may know the DAG from before, as Airflow makes them: paused.
            airflow.request("PATCH", f"/api/v2/dags/{dag_file.stem}", {"is_paused": False})
            yield airflow
        finally:
            airflow.end()


def is_over(process: psutil.Process) -> bool:
    """Whether a process has ended, be it that its parent has not taken note yet."""
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def kill(process: psutil.Process) -> None:
    """Kill a process as the system does when memory runs out."""
    os.kill(process.pid, signal.SIGKILL)
