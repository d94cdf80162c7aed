"""What befalls a cluster at work: workers die, processes freeze, stores restart, a service throttles."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil

from tests.cluster.stack import Cluster, Simulator
from tests.dags.installation import Run, until

#: Seconds in which Airflow has to notice that a task is gone, and to have started it anew.
NOTICED_S = 150.0
#: Seconds for which the service asks everybody to wait.
THROTTLED_S = 25
#: Seconds without a Redis.
REDIS_AWAY_S = 4.0


@dataclass
class Faults:
    """
    Faults for one run of a DAG with mapped dispatch tasks.

    :param service: the one that the tasks call.
    :param say: tells what happens.
    """

    cluster: Cluster
    run: Run
    service: Simulator
    say: Callable[[str], None]
    #: calls that were open where a fault cut them off, and that may be paid again
    cut: int = 0

    def kill_a_worker(self) -> None:
        """Let a worker that has calls open die with its tasks, and start another in its place."""

        def at_work() -> Any:
            workers = self.cluster.serving["io-worker"]
            return next((one for one in workers if any(map(self._calls, self.cluster.family(one)))), None)

        worker = until(at_work, "a worker with open calls", 60)
        family = self.cluster.family(worker)
        # What stands still opens no further calls while they are counted.
        _signal(family, signal.SIGSTOP)
        cut = sum(self._calls(process) for process in family)
        self.cut += cut
        self.cluster.die(worker, "io-worker")
        self.cluster.serve("io-worker")
        self.say(f"killed a worker with {cut} calls open, and started another")

    def freeze_a_task(self, *, with_supervisor: bool) -> None:
        """Freeze a task's supervisor, or both, until the task has been started anew; then thaw it."""
        index, task = self._a_task()
        frozen = [task.parent(), *([task] if with_supervisor else [])]
        tries = self._instance(index)["try_number"]
        _signal(frozen, signal.SIGSTOP)
        seen = [self._calls(task)]

        def is_anew() -> bool:
            # A task whose supervisor alone is frozen goes on calling.
            seen.append(self._calls(task))
            instance = self._instance(index)
            return bool(instance["try_number"] > tries and instance["state"] in ("running", "success"))

        try:
            until(is_anew, f"dispatch[{index}] anew", NOTICED_S)
        finally:
            _signal(frozen, signal.SIGCONT)
        self.cut += max(seen)
        who = "a task and its supervisor" if with_supervisor else "the supervisor of a task"
        self.say(f"froze {who}, {max(seen)} calls open, until dispatch[{index}] was started anew; thawed it")

    def restart_redis(self) -> None:
        """Kill Redis, and start it again with what it has kept."""
        redis = self.cluster.redis
        if redis is None:
            self.say("Redis was given and is not ours to restart: skipped")
            return
        redis.kill()
        time.sleep(REDIS_AWAY_S)
        redis.start()
        self.say(f"killed Redis, and started it again after {REDIS_AWAY_S:g} s")

    def restart_the_triggerer(self) -> None:
        """Have the service throttle everybody, and kill the triggerer while the tasks are deferred."""
        wait = {"status": 429, "headers": {"retry-after": str(THROTTLED_S)}, "error": {"message": "wait"}}
        self.service.play({"match": {"first": 1}, "reply": wait})
        deferred = until(lambda: self._in("deferred"), "a deferred task", 60)
        (triggerer,) = self.cluster.serving["triggerer"]
        self.cluster.die(triggerer, "triggerer")
        self.cluster.serve("triggerer")
        until(lambda: not self._in("deferred"), "the end of the deferrals", NOTICED_S)
        self.say(f"throttled the service; restarted the triggerer with tasks deferred: {len(deferred)}")

    def _a_task(self) -> tuple[int, psutil.Process]:
        """Return a running task that has calls open, and its number."""
        return until(lambda: next(self._tasks(), None), "a task with open calls", 60)

    def _tasks(self) -> Iterator[tuple[int, psutil.Process]]:
        for instance in self._in("running"):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(instance["pid"])
                if self._calls(process) and process.status() != psutil.STATUS_STOPPED:
                    yield instance["map_index"], process

    def _calls(self, process: psutil.Process) -> int:
        """Count the connections to the service that a process has open."""
        with contextlib.suppress(psutil.Error):
            links = process.net_connections("tcp")
            return sum(bool(link.raddr) and link.raddr.port == self.service.port for link in links)
        return 0

    def _instances(self) -> list[dict[str, Any]]:
        found = self.cluster.request("GET", f"{self.run.path}/taskInstances?task_id=dispatch&limit=100")
        return [one for one in found["task_instances"] if one["task_id"] == "dispatch"]

    def _in(self, state: str) -> list[dict[str, Any]]:
        return [one for one in self._instances() if one["state"] == state]

    def _instance(self, index: int) -> dict[str, Any]:
        return next(one for one in self._instances() if one["map_index"] == index)


def _signal(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
