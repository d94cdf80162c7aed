"""
The main job in one command: real conversations through a real Airflow, against the simulator.

``python -m airflow_provider_llmbatch.simulator.demo`` starts the simulator, runs the DAG
``conversation_insights`` on embedded SQLite and prints its report. With ``LLMBATCH_BASE_URL`` and
``LLMBATCH_API_KEY`` set it talks to that endpoint instead (``LLMBATCH_MODEL`` names the model).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

ROOT = Path.cwd()
HOME = ROOT / "build" / "demo"
DAG_ID = "conversation_insights"
MODEL = "gpt-4o-mini"

#: What the simulated account allows; the connection says the same.
LIMITS = {"requests_per_minute": 600, "tokens_per_minute": 400_000, "max_in_flight": 20}

#: Lines of the run that a person wants to see: those of our own tasks.
_OURS = re.compile(
    r"airflow_provider_llmbatch|\.operators\.|items in|done \(|Complete|Stopped|Report:|Error|error"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def main() -> int:
    """Run the demo; returns the exit status."""
    started = time.monotonic()
    HOME.mkdir(parents=True, exist_ok=True)
    with _endpoint() as (url, key):
        environment = _environment(url, key)
        print(f"demo: endpoint {url}, model {_model()}", flush=True)
        if not (HOME / "airflow.db").exists():
            print("demo: making Airflow's database", flush=True)
            _quietly([sys.executable, "-m", "airflow", "db", "migrate"], environment)
        run_id = f"demo-{time.strftime('%Y%m%dT%H%M%S')}"
        print(f"demo: running DAG {DAG_ID} (60 conversations)", flush=True)
        status = _run_dag(environment)
    report = _newest_report()
    if status or report is None:
        print(f"demo: FAILED with status {status}; the log is {HOME / 'run.log'} ({run_id})")
        return status or 1
    print(report.with_suffix(".md").read_text(encoding="utf-8"))
    print(f"demo: HTML report {report}")
    print(f"demo: ok in {time.monotonic() - started:.0f} s")
    return 0


def _model() -> str:
    return os.environ.get("LLMBATCH_MODEL", MODEL)


@contextmanager
def _endpoint() -> Iterator[tuple[str, str]]:
    """Yield base URL and key of the user's endpoint, or of a simulator that lives as long as the run."""
    if url := os.environ.get("LLMBATCH_BASE_URL"):
        yield url, os.environ.get("LLMBATCH_API_KEY", "")
        return
    command = [sys.executable, "-m", "airflow_provider_llmbatch.simulator", "--port", "0"]
    command += ["--rpm", str(LIMITS["requests_per_minute"]), "--tpm", str(LIMITS["tokens_per_minute"])]
    with subprocess.Popen([*command, "--latency", "0.4"], stdout=subprocess.PIPE, text=True) as simulator:
        try:
            line = simulator.stdout.readline() if simulator.stdout else ""
            yield line.rpartition(" ")[2].strip(), "sk-simulated"
        finally:
            simulator.terminate()


def _environment(url: str, key: str) -> dict[str, str]:
    connection = {"conn_type": "llmbatch", "host": url, "password": key, "extra": LIMITS}
    return {
        **os.environ,
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
        "AIRFLOW_CONN_LLMBATCH_DEFAULT": json.dumps(connection),
        "PYTHONUNBUFFERED": "1",
    }


def _quietly(command: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")
        raise SystemExit(done.returncode)


def _run_dag(environment: Mapping[str, str]) -> int:
    conf = json.dumps({"model": _model()})
    command = [sys.executable, "-m", "airflow", "dags", "test", DAG_ID, "-c", conf]
    with (
        open(HOME / "run.log", "w", encoding="utf-8") as log,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as run,
    ):
        for line in run.stdout or ():
            log.write(line)
            plain = _COLOUR.sub("", line)
            if _OURS.search(plain):
                print(f"  {plain.rstrip()[:160]}", flush=True)
    return run.returncode


def _newest_report() -> Path | None:
    folder = HOME / "llmbatch" / "results" / quote(DAG_ID, safe="")
    found = sorted(folder.glob("*/report/report.html"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


if __name__ == "__main__":
    sys.exit(main())
