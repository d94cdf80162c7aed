"""The services of ``docker/compose.yaml`` as processes on loopback: started, killed and ended here."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from airflow_provider_llmbatch.simulator.arrivals import Arrival, read_arrivals
from tests.cluster import postgres
from tests.cluster.compose import Compose, Loopback, Service
from tests.dags.installation import Installation, free_port, until
from tests.engine.observe.statsd_server import StatsdServer
from tests.services import redis_server

ROOT = Path(__file__).parents[2]
FILES = Path(__file__).parent / "files"
#: Set to use a Redis that is there; its database is the broker's, the next one holds the state.
GIVEN_REDIS = "LLMBATCH_TEST_REDIS_URL"
#: Every process of a cluster has this in its environment, so that none is overlooked in the end.
MARK = "LLMBATCH_CLUSTER"

#: What makes a rehearsal short: Airflow looks more often, and gives up sooner.
HASTE = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "15",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
}
#: Ports that processes of one host would fight over.
OWN_PORTS = (
    "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT",
    "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT",
)
SECRETS = ("API_SECRET_KEY", "JWT_SECRET", "POSTGRES_PASSWORD", "REDIS_PASSWORD")


class Metrics(StatsdServer):
    """Takes the statsd exporter's place, and keeps what batches tell; Airflow tells much more."""

    def _receive(self) -> None:
        while content := self._socket.recv(65536):
            text = content.decode()
            if ".llmbatch." in text:
                self.datagrams.append(text)


@dataclass
class Simulator:
    """A simulated service of the cluster, from its own side."""

    url: str

    def arrivals(self) -> list[Arrival]:
        """Return what has arrived, in order."""
        return read_arrivals(httpx.get(f"{self.url}/_sim/arrivals", timeout=30.0).json())

    def stats(self) -> dict[str, Any]:
        """Return totals, and the windows that were over a limit."""
        found: dict[str, Any] = httpx.get(f"{self.url}/_sim/stats", timeout=30.0).json()
        return found

    def play(self, *rules: Mapping[str, Any]) -> None:
        """Answer by these rules from now on."""
        httpx.post(f"{self.url}/_sim/scenario", json={"rules": rules}, timeout=30.0).raise_for_status()

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0


@dataclass
class Cluster(Installation):
    """
    The processes of a cluster.

    :param python: of the environment that Airflow and our wheel are installed in.
    :param compose: says what to run.
    :param loopback: says where.
    :param extra: environment of all services, over that of the file.
    """

    python: Path = Path()
    compose: Compose = field(default_factory=lambda: Compose({}))
    loopback: Loopback = field(default_factory=lambda: Loopback(Path(), lambda host, port: port))
    extra: Mapping[str, str] = field(default_factory=dict)
    redis: redis_server.Server | None = None
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    serving: dict[str, list[subprocess.Popen[bytes]]] = field(default_factory=dict)

    def of(self, service: Service) -> dict[str, str]:
        """Return the environment of a service's process; the machine's own does not reach it."""
        own = {
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
        }
        ports = {name: str(free_port()) for name in OWN_PORTS}
        api = {"AIRFLOW__API__HOST": "127.0.0.1", "AIRFLOW__API__PORT": str(urlsplit(self.url).port)}
        told = {name: self._given(value) for name, value in self.loopback.environment(service).items()}
        extra = {name: self.loopback.text(value) for name, value in self.extra.items()}
        return {**own, "AIRFLOW_HOME": str(self.home), **told, **extra, **ports, **api, MARK: self.mark}

    def run(self, name: str) -> None:
        """Run a service that ends by itself."""
        assert self.serve(name).wait() == 0, f"{name} has failed; look into {self.home / 'processes'}"

    def serve(self, name: str) -> subprocess.Popen[bytes]:
        """Start a service, once."""
        service = self.compose.services[name]
        words = self.loopback.command(service)
        program = [str(self.python), *words[1:]] if words[0] == "python" else [self._airflow, *words]
        if words[:2] == ["celery", "worker"]:
            # Each container has a host name of its own.
            program += ["--celery-hostname", secrets.token_hex(4)]
        with open(self.home / "processes" / f"{name}-{len(self.processes)}.log", "ab") as log:
            started = subprocess.Popen(
                program,
                env=self.of(service),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(started)
        self.serving.setdefault(name, []).append(started)
        return started

    def serve_all(self, *names: str) -> None:
        """Start services, each as often as the file says."""
        for name in names:
            for _ in range(self.compose.services[name].replicas):
                self.serve(name)

    def family(self, process: subprocess.Popen[bytes]) -> list[psutil.Process]:
        """Return a process and all that it has started, the youngest last."""
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]

    def die(self, process: subprocess.Popen[bytes], name: str) -> None:
        """Let a service and all its processes end at once, as when its host dies."""
        family = self.family(process)
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(family, timeout=30)
        process.wait()
        self.serving[name].remove(process)

    def simulator(self, name: str = "simulator") -> Simulator:
        """Return a simulated service."""
        return Simulator(self.loopback.text(f"http://{name}:8089"))

    def is_well(self) -> bool:
        """Whether all services run, and Airflow calls its components healthy."""
        for name, processes in self.serving.items():
            over = [process for process in processes if process.poll() not in (None, 0)]
            assert not over, f"{name} has ended; look into {self.home / 'processes'}"
        told = self.request("GET", "/api/v2/monitor/health")
        return {part["status"] for part in told.values() if part["status"]} == {"healthy"}

    def log_in(self) -> None:
        """Become the administrator, as soon as the API server knows one."""
        passwords = self.home / "simple_auth_manager_passwords.json.generated"
        until(lambda: self._answers(), "the API server", 240)
        (user,) = json.loads(passwords.read_text()).items()
        token = self.request("POST", "/auth/token", {"username": user[0], "password": user[1]})
        self.client.headers["Authorization"] = f"Bearer {token['access_token']}"

    def left(self) -> list[psutil.Process]:
        """Return processes of this cluster that are still there."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def end(self) -> None:
        """Kill all that was started, frozen ones as well."""
        super().end()
        rest = self.left()
        for process in rest:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(rest, timeout=30)

    @property
    def _airflow(self) -> str:
        return str(self.python.with_name("airflow"))

    def _given(self, text: str) -> str:
        """Put stores that were there before in the place of our own."""
        for ours, given in self._stores():
            text = text.replace(ours, given)
        return text

    def _stores(self) -> Iterator[tuple[str, str]]:
        if url := os.environ.get(postgres.GIVEN):
            told = self.loopback.text("postgres:5432")
            yield (
                f"airflow:{self.compose.variables['POSTGRES_PASSWORD']}@{told}/airflow",
                url.partition("://")[2],
            )
        if url := os.environ.get(GIVEN_REDIS):
            server, _, number = url.rpartition("/")
            ours = f"redis://:{self.compose.variables['REDIS_PASSWORD']}@{self.loopback.text('redis:6379')}"
            yield f"{ours}/0", url
            yield f"{ours}/1", f"{server}/{int(number or 0) + 1}"

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self.client.get(f"{self.url}/api/v2/version").is_success
        return False


@contextlib.contextmanager
def running(
    home: Path, python: Path, variables: Mapping[str, str], extra: Mapping[str, str]
) -> Iterator[tuple[Cluster, Metrics]]:
    """
    Prepare a cluster with its stores; nothing of Airflow is started yet.

    :param home: takes the place of ``/opt/airflow``; what is in it goes.
    :param variables: of the compose file, beside its secrets.
    :param extra: environment of all services, over that of the file.
    """
    _furnish(home)
    given = {**{name: secrets.token_hex(32) for name in SECRETS}, "FERNET_KEY": _fernet_key(), **variables}
    with contextlib.ExitStack() as stack:
        metrics = stack.enter_context(Metrics())
        server = redis_server.Server(home / "redis")

        @cache
        def port(host: str, number: int) -> int:
            return {"redis": server.port, "statsd-exporter": metrics.port}.get(host) or free_port()

        url = f"http://127.0.0.1:{port('api-server', 8080)}"
        compose, loopback = Compose({**given, "BASE_URL": url}), Loopback(home, port)
        if GIVEN_REDIS not in os.environ:
            service = compose.services["redis"]
            # The client of the command line reads its password there.
            os.environ.update(service.environment)
            server.options = service.command[1:]
            stack.callback(server.kill)
            server.start()
        password = given["POSTGRES_PASSWORD"]
        stack.enter_context(postgres.database(port("postgres", 5432), "airflow", password, "airflow"))
        client = stack.enter_context(httpx.Client(timeout=30.0))
        cluster = Cluster(home, url, client, [], python, compose, loopback, {**HASTE, **extra})
        cluster.redis = None if GIVEN_REDIS in os.environ else server
        stack.callback(cluster.end)
        yield cluster, metrics


def _furnish(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(ROOT / "dags", home / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(FILES / "again.py", home / "dags")
    for name in ("config", "processes", "redis"):
        (home / name).mkdir()
    shutil.copy(FILES / "airflow_local_settings.py", home / "config")


def _fernet_key() -> str:
    from cryptography.fernet import Fernet

    return Fernet.generate_key().decode()
