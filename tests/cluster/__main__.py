"""
A cluster on this machine, and everything that may befall it, in one command.

``python -m tests.cluster`` installs the wheel in an environment of its own, starts the services of
``docker/compose.yaml`` as processes, runs the DAG ``conversation_insights``, lets faults happen meanwhile,
and judges from the logs of the simulated services. It leaves no process behind.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tests.cluster import environment
from tests.cluster.faults import Faults
from tests.cluster.judge import Account, judge
from tests.cluster.stack import Cluster, running
from tests.dags.installation import Run, kill, talking_to, until

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "cluster"
KEY = "sk-simulated-0123456789"
MODEL = "gpt-4o-mini"
#: Seconds that services may take to start, all at once on a small machine.
START_S = 240.0


#: Services that tasks need, and those of Airflow after them.
SERVING = ("simulator", "second-simulator", "api-server")
WORKING = ("scheduler", "dag-processor", "triggerer", "io-worker", "cpu-worker", "gpu-worker")


@dataclass(frozen=True)
class Size:
    """How large a rehearsal is."""

    items: int
    chunks: int
    #: requests in a window, and its seconds
    requests: int
    window_s: int
    in_flight: int
    latency_s: float
    heartbeat_timeout_s: int = 20
    with_faults: bool = True
    with_gpu: bool = True
    #: seconds after which it is given up, whatever it is doing
    give_up_s: int = 590

    def variables(self) -> dict[str, str]:
        """Return the variables of the compose file."""
        limits = {"requests_per_minute": self.requests, "tokens_per_minute": 10**7, "window_s": self.window_s}
        connection = {
            **{"conn_type": "llmbatch", "host": "http://simulator:8089/v1", "password": KEY},
            "extra": {**limits, "max_in_flight": self.in_flight},
        }
        return {
            "API_WORKERS": "1",
            "DEFER_AFTER": "8",
            "HEARTBEAT_TIMEOUT": str(self.heartbeat_timeout_s),
            "LLMBATCH_CONNECTION": json.dumps(connection),
            "PARSING_PROCESSES": "1",
            "SIMULATOR_LATENCY": str(self.latency_s),
            "SIMULATOR_RPM": str(self.requests),
            "SIMULATOR_TPM": str(10**7),
            "SIMULATOR_WINDOW": str(self.window_s),
            # Two workers, and room for tasks that start anew while their first process is frozen.
            "WORKER_CONCURRENCY": str(self.chunks // 2 + 1),
        }


LARGE = Size(items=2000, chunks=8, requests=260, window_s=20, in_flight=40, latency_s=1.5)
SMALL = Size(
    **{"items": 700, "chunks": 4, "requests": 80, "window_s": 10, "in_flight": 16, "latency_s": 0.8},
    heartbeat_timeout_s=15,
    with_gpu=False,
    give_up_s=300,
)
#: As fast as the machine can, to see what many items do to Airflow.
MANY = Size(
    **{"items": 50_000, "chunks": 16, "requests": 10**5, "window_s": 20, "in_flight": 256, "latency_s": 0.2},
    with_faults=False,
    give_up_s=1500,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Rehearse, print what happens, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--small", action="store_const", const=SMALL, dest="size", help="fewer items, services"
    )
    sizes.add_argument(
        "--many", action="store_const", const=MANY, dest="size", help="50,000 items, no faults"
    )
    size: Size = parser.parse_args(arguments).size or LARGE
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, _stop)
    signal.alarm(size.give_up_s)
    began = time.monotonic()
    environment.need_programs()
    say(f"installing the wheel in {FOLDER}")
    python = environment.install(FOLDER)
    with running(FOLDER / "airflow", python, size.variables(), _second(size)) as (cluster, metrics):
        start(cluster, size)
        say(f"all services are up after {time.monotonic() - began:.0f} s")
        pay_once(cluster)
        account = rehearse(cluster, size, metrics.datagrams)
        cluster.end()
        left = cluster.left()
    print("\n".join(f"  {line}" for line in account.lines()))
    wrong = account.faults() + [f"a process is left: {process}" for process in left]
    seconds = time.monotonic() - began
    if wrong:
        say(f"FAILED after {seconds:.0f} s: {'; '.join(wrong)}; logs are in {FOLDER / 'airflow'}")
        return 1
    say(
        f"ok, {account.items:,} items in {size.chunks} chunks, lost 0, paid twice {account.again} of at most "
        f"{account.cut}, windows over {account.windows_over}, use {account.use:.0%}, {seconds:.0f} s"
    )
    return 0


def start(cluster: Cluster, size: Size) -> None:
    """Start the services, and wait until all are well."""
    cluster.run("init")
    cluster.serve_all(*SERVING)
    cluster.log_in()
    cluster.serve_all(*(name for name in WORKING if size.with_gpu or name != "gpu-worker"))
    until(cluster.is_well, "healthy components", START_S)
    for dag in ("conversation_insights", "again"):
        until(lambda dag=dag: _is_known(cluster, dag), f"the DAG {dag}", START_S)
        cluster.request("PATCH", f"/api/v2/dags/{dag}", {"is_paused": False})


def pay_once(cluster: Cluster) -> None:
    """Kill a task as the system does without memory, clear it, run the DAG once more: all is paid once."""
    service = cluster.simulator("second-simulator")
    run = cluster.trigger("again")
    until(lambda: sum(a.status == 200 for a in service.arrivals()) >= 20, "the first answers", 120)
    task = until(lambda: _of_any(cluster, service.port), "the task")
    kill(task)
    first = run.wait_for("dispatch", "success", "failed")
    assert first["state"] == "success", run.log("dispatch", first["try_number"])
    paid = len(service.arrivals())
    manifest = run.returned("dispatch")
    again = paid - manifest["items"]
    assert manifest["counts"] == {"ok": manifest["items"]}
    assert 0 <= again <= manifest["possible_double_paid"], (again, manifest)
    clear = {"dry_run": False, "task_ids": ["dispatch"], "dag_run_id": run.run_id, "only_failed": False}
    cluster.request("POST", "/api/v2/dags/again/clearTaskInstances", clear)
    until(lambda: run.instance("dispatch")["try_number"] > first["try_number"], "the cleared task")
    for told in (run, cluster.trigger("again")):
        assert told.wait_for("dispatch", "success", "failed")["state"] == "success"
        assert told.returned("dispatch")["counts"] == {"ok": manifest["items"]}
    assert len(service.arrivals()) == paid, "a finished item was paid again"
    say(f"a task was killed, cleared and triggered anew: {manifest['items']} items, {again} paid twice")


def rehearse(cluster: Cluster, size: Size, datagrams: list[str]) -> Account:
    """Run the conversations through all faults, and draw up the account."""
    service = cluster.simulator()
    source = cluster.home / "conversations.jsonl"
    source.write_text("".join(_conversations(size.items)))
    conf = {"source": str(source), "model": MODEL, "budget_usd": 1000, "max_chunks": size.chunks}
    run = cluster.trigger("conversation_insights", **conf)
    faults = Faults(cluster, run, service, say)
    plan: list[tuple[float, Callable[[], None]]] = [
        (0.08, faults.kill_a_worker),
        (0.15, faults.restart_the_triggerer),
        # A frozen task has work left until it is thawed, however long that takes.
        (0.25, lambda: faults.freeze_a_task(with_supervisor=True)),
        (0.40, lambda: faults.freeze_a_task(with_supervisor=False)),
        # The last: after a loss of its broker Celery may hand a task to a process that is busy, or frozen.
        (0.60, faults.restart_redis),
    ]
    say(f"running {size.items:,} items in {size.chunks} chunks")
    for share, befall in plan if size.with_faults else ():
        until(lambda share=share: _done(service) >= share * size.items, f"{share:.0%} of the items", 240)
        befall()
    until(lambda: cluster.is_well() and _state(run) in ("success", "failed"), "the end", size.give_up_s)
    assert _state(run) == "success", f"the run has failed; look into {cluster.home / 'logs'}"
    manifests = [_returned(run, index) for index in range(size.chunks)]
    logs = cluster.home / "logs" / f"dag_id={run.dag_id}" / f"run_id={run.run_id}" / "task_id=dispatch"
    return judge(
        manifests=manifests,
        items=size.items,
        service=service,
        cut=faults.cut,
        logs=logs,
        datagrams=datagrams,
    )


def say(words: str) -> None:
    print(f"cluster: {words}", flush=True)


def _second(size: Size) -> dict[str, str]:
    connection = {"conn_type": "llmbatch", "host": "http://second-simulator:8089/v1", "password": KEY}
    limits = {"requests_per_minute": size.requests, "window_s": size.window_s, "max_in_flight": 4}
    return {"AIRFLOW_CONN_LLMBATCH_SECOND": json.dumps({**connection, "extra": limits})}


def _conversations(items: int) -> Iterator[str]:
    """Yield items: the real conversations over and over, no two alike."""
    rows = [json.loads(line) for line in (ROOT / "dags" / "data" / "conversations.jsonl").open()]
    for number in range(items):
        turns = rows[number % len(rows)]["vars"]["turns"]
        opening = {"speaker": "A", "text": f"This is conversation {number}."}
        yield json.dumps({"id": f"c-{number}", "vars": {"turns": [opening, *turns]}}) + "\n"


def _done(service: Any) -> int:
    return sum(arrival.status == 200 for arrival in service.arrivals())


def _is_known(cluster: Cluster, dag_id: str) -> bool:
    return any(dag["dag_id"] == dag_id for dag in cluster.request("GET", "/api/v2/dags")["dags"])


def _state(run: Run) -> str:
    return str(run.installation.request("GET", run.path)["state"])


def _returned(run: Run, index: int) -> dict[str, Any]:
    path = f"{run.path}/taskInstances/dispatch/xcomEntries/return_value?map_index={index}&stringify=false"
    found: dict[str, Any] = run.installation.request("GET", path)["value"]
    return found


def _of_any(cluster: Cluster, port: int) -> Any:
    return next(filter(None, (talking_to(port, worker) for worker in cluster.serving["io-worker"])), None)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(f"cluster: FAILED, {'it took too long' if number == signal.SIGALRM else 'ended'}")


if __name__ == "__main__":
    sys.exit(main())
