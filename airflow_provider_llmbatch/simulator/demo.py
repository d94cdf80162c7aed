"""
The main job in one command: real conversations through a real Airflow, against the simulator.

``python -m airflow_provider_llmbatch.simulator.demo`` starts the simulator, runs the DAG
``conversation_insights`` on embedded SQLite and prints its report. With ``LLMBATCH_BASE_URL`` and
``LLMBATCH_API_KEY`` set it talks to that endpoint instead (``LLMBATCH_MODEL`` names the model).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow_provider_llmbatch.engine.manifests import manifests
from airflow_provider_llmbatch.engine.report.merge import merge
from airflow_provider_llmbatch.engine.report.numbers import count, money
from airflow_provider_llmbatch.engine.results.folder import open_folder

ROOT = Path.cwd()
DAG_ID = "conversation_insights"
MODEL = "gpt-4o-mini"

#: What the simulated account allows; the connection says the same.
LIMITS = {"requests_per_minute": 600, "tokens_per_minute": 400_000, "max_in_flight": 20}

_OURS = "airflow.task.operators.airflow_provider_llmbatch."
_BEGINS = re.compile(r"\[DAG TEST\] starting task_id=(\S+) map_index=(-?\d+)")
#: Columns of a line, and of the name of a task in it.
_WIDTH, _NAME_WIDTH = 110, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """
    One run of the DAG in an Airflow of its own.

    :param name: heads every line, and names the folder below ``build``.
    :param connection: the connection to use, in Airflow's JSON form.
    :param conf: params of the run.
    """

    name: str
    connection: Mapping[str, Any] = field(repr=False)
    conf: Mapping[str, Any]
    dag_id: str = DAG_ID

    @property
    def home(self) -> Path:
        """The folder of this Airflow."""
        return ROOT / "build" / self.name

    def run(self) -> int:
        """Run the DAG, print what happens and what came out; returns the exit status."""
        started, moment = time.monotonic(), time.time()
        status = self.run_dag()
        report = self._newest_report(since=moment)
        if status or report is None:
            self.say(f"the run has failed, status {status}; look into {self.home / 'run.log'}")
            return status or 1
        print(f"\n{report.with_suffix('.md').read_text(encoding='utf-8')}")
        self.say(f"the same as a page: {report}")
        results = report.parent.parent / "dispatch"
        self.say(f"the rows: {results}")
        self.say(f"ok, {_account(results)} in {time.monotonic() - started:.0f} s")
        return 0

    def run_dag(self) -> int:
        """Run the DAG and print what happens; returns the exit status of Airflow's command."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._migrate()
        self.say(f"running DAG {self.dag_id}; all of its log goes to {self.home / 'run.log'}")
        return self._test_dag()

    @property
    def results(self) -> Path:
        """The folder below which the runs of the DAG keep their results."""
        return self.home / "llmbatch" / "results" / quote(self.dag_id, safe="")

    def say(self, words: str) -> None:
        """Print a line."""
        print(f"{self.name}: {words}", flush=True)

    def _environment(self) -> dict[str, str]:
        # Settings of another Airflow would lead to that one's database.
        ours = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
        return {
            **ours,
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__LOGGING__JSON_LOGS": "True",
            "AIRFLOW_CONN_LLMBATCH_DEFAULT": json.dumps(self.connection),
            "PYTHONUNBUFFERED": "1",
        }

    def _migrate(self) -> None:
        """Make the database, or bring it to the version of Airflow that is installed."""
        done_for, version = self.home / "migrated", importlib.metadata.version("apache-airflow")
        if done_for.exists() and done_for.read_text() == version:
            return
        self.say("making Airflow's database, once")
        command = [sys.executable, "-m", "airflow", "db", "migrate"]
        done = subprocess.run(command, env=self._environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")
            raise SystemExit(done.returncode)
        done_for.write_text(version)

    def _test_dag(self) -> int:
        command = [sys.executable, "-m", "airflow", "dags", "test", self.dag_id, "-c", json.dumps(self.conf)]
        with (
            open(self.home / "run.log", "w", encoding="utf-8") as log,
            subprocess.Popen(
                command,
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as run,
        ):
            show = Show()
            for line in run.stdout or ():
                log.write(line)
                for words in show.lines(line):
                    print(words, flush=True)
        return run.returncode

    def _newest_report(self, since: float) -> Path | None:
        found = ((path.stat().st_mtime, path) for path in self.results.glob("*/report/report.html"))
        return max(((at, path) for at, path in found if at >= since), default=(0.0, None))[1]


class Show:
    """Picks what a person wants to see out of a run's log: what our own tasks say, and errors."""

    def __init__(self) -> None:
        self._task = ""

    def lines(self, line: str) -> Iterator[str]:
        """Yield what to print of a line of the log."""
        try:
            entry = json.loads(line)
            event, level, logger = str(entry["event"]), entry.get("level"), entry.get("logger") or ""
        except (ValueError, KeyError, TypeError):
            return
        if begins := _BEGINS.match(event):
            self._task = begins[1] if begins[2] == "-1" else f"{begins[1]}[{begins[2]}]"
        elif logger.startswith(_OURS) and not event.startswith("Report:"):
            yield from self._wrapped(event)
        elif level in ("error", "critical"):
            yield from self._wrapped(f"{level}: {event}")
            for cause in entry.get("exception") or ():
                yield from self._wrapped(f"{cause.get('exc_type')}: {cause.get('exc_value')}")

    def _wrapped(self, words: str) -> Iterator[str]:
        head = f"  {self._task:{_NAME_WIDTH}} "
        indent = " " * len(head)
        yield from textwrap.wrap(words, _WIDTH, initial_indent=head, subsequent_indent=indent)


def main() -> int:
    """Run the demo; returns the exit status."""
    model = os.environ.get("LLMBATCH_MODEL", MODEL)
    with _endpoint() as (url, key, limits):
        connection = {"conn_type": "llmbatch", "host": url, "password": key, "extra": limits}
        demo = Demo(name="demo", connection=connection, conf={"model": model})
        demo.say(f"endpoint {url}, model {model}")
        return demo.run()


@contextmanager
def _endpoint() -> Iterator[tuple[str, str, Mapping[str, int]]]:
    """Yield base URL, key and limits of the user's endpoint, or of a simulator that lives as long."""
    if url := os.environ.get("LLMBATCH_BASE_URL"):
        yield url, os.environ.get("LLMBATCH_API_KEY", ""), LIMITS
        return
    command = [sys.executable, "-m", "airflow_provider_llmbatch.simulator", "--port", "0"]
    command += ["--rpm", str(LIMITS["requests_per_minute"]), "--tpm", str(LIMITS["tokens_per_minute"])]
    with subprocess.Popen([*command, "--latency", "0.4"], stdout=subprocess.PIPE, text=True) as simulator:
        try:
            line = simulator.stdout.readline() if simulator.stdout else ""
            yield line.rpartition(" ")[2].strip(), "sk-simulated", LIMITS
        finally:
            simulator.terminate()


def _account(results: Path) -> str:
    report = merge(manifests(open_folder(str(results), read_only=True), as_of=""))
    usage = f"{count(report.usage.prompt)} tokens in, {count(report.usage.completion)} out"
    spent = money(report.cost.usd, unpriced=report.cost.unpriced)
    return f"{count(report.good)} of {count(report.items)} items usable, {usage}, {spent}"


if __name__ == "__main__":
    sys.exit(main())
