"""What surrounds a task: its state store, its host, the executor."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_provider_llmbatch.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_llmbatch.engine.state.claims import Claims
    from airflow_provider_llmbatch.engine.state.protocols import State
    from airflow_provider_llmbatch.engine.state.routing import Routing
    from airflow_provider_llmbatch.engine.state.stops import Stops
    from airflow_provider_llmbatch.settings import Settings

#: Executors whose tasks all run on the scheduler's host.
LOCAL = ("LocalExecutor", "SequentialExecutor")
#: What separates executors, and what stands before the name of one: module, alias, team.
_BETWEEN, _BEFORE = re.compile(r"[,;]"), re.compile(r".*[.:=]")
#: Pods of the Kubernetes executor are told of another executor, so that they can run one task by themselves.
_POD = "AIRFLOW_IS_K8S_EXECUTOR_POD"
#: Libraries that replace sockets and threads: the module that does it, its function that tells, and of what.
_GREEN = (
    ("gevent", "gevent.monkey", "is_module_patched", ("socket", "threading")),
    ("eventlet", "eventlet.patcher", "is_monkey_patched", ("socket", "thread")),
)


def open_state(settings: Settings) -> State:
    """
    Open the state that ``[llmbatch] redis_conn_id`` or ``state_url`` names.

    :raises ConfigurationError: for a store that cannot be used here.
    """
    from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
    from airflow_provider_llmbatch.hooks.state import redis_url

    address = redis_url(settings.redis_conn_id) if settings.redis_conn_id else settings.state_url
    scheme, _, rest = address.partition("://")
    if scheme != "sqlite":
        from airflow_provider_llmbatch.engine.state.redis import RedisState, connect

        return RedisState(connect(address))
    refuse_other_hosts(settings, "State in a SQLite file")
    return SqliteState("/" + rest.lstrip("/"), host="" if settings.single_host else host_of(settings))


async def warn_about(state: State, warn: Callable[[str], None]) -> None:
    """Say what about a store's settings may cost what it holds."""
    from airflow_provider_llmbatch.engine.state.redis import RedisState

    if isinstance(state, RedisState) and (words := await state.warning()):
        warn(words)


def open_claims(state: State) -> Claims:
    """Return who asks which question, from the store that ``state`` is in."""
    from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
    from airflow_provider_llmbatch.engine.state.sqlite.claims import SqliteClaims

    if isinstance(state, SqliteState):
        return SqliteClaims(state)
    from airflow_provider_llmbatch.engine.state.redis import RedisState
    from airflow_provider_llmbatch.engine.state.redis.claims import RedisClaims

    if isinstance(state, RedisState):
        return RedisClaims(state)
    raise ConfigurationError(f"There are no claims in a {type(state).__name__}; leave reuse out.")


def open_stops(state: State) -> Stops:
    """Return which runs shall stop, from the store that ``state`` is in."""
    from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
    from airflow_provider_llmbatch.engine.state.sqlite.stops import SqliteStops

    if isinstance(state, SqliteState):
        return SqliteStops(state)
    from airflow_provider_llmbatch.engine.state.redis import RedisState
    from airflow_provider_llmbatch.engine.state.redis.stops import RedisStops

    if isinstance(state, RedisState):
        return RedisStops(state)
    raise ConfigurationError(f"Nobody can stop a run whose state is a {type(state).__name__}.")


def open_routing(state: State) -> Routing:
    """Return what people know and do about routes, from the store that ``state`` is in."""
    from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
    from airflow_provider_llmbatch.engine.state.sqlite.routing import SqliteRouting

    if isinstance(state, SqliteState):
        return SqliteRouting(state)
    from airflow_provider_llmbatch.engine.state.redis import RedisState
    from airflow_provider_llmbatch.engine.state.redis.routing import RedisRouting

    if isinstance(state, RedisState):
        return RedisRouting(state)
    raise ConfigurationError(f"Nobody can pin a route whose state is a {type(state).__name__}.")


def refuse_green_threads() -> None:
    """
    Refuse a process whose sockets or threads gevent or eventlet has replaced: event loops stand still there.

    :raises ConfigurationError: naming the setting of the worker.
    """
    for library, module, asked, parts in _GREEN:
        patcher = sys.modules.get(module)
        patched = [part for part in parts if patcher and getattr(patcher, asked)(part)]
        if patched:
            raise ConfigurationError(
                f"{library} has replaced {' and '.join(patched)} in this worker, and calls would stand still "
                "in it. Nothing was sent. Run such tasks on a worker with processes: set [celery] pool to "
                "prefork (celery worker --pool prefork), or give the tasks a queue of such a worker, for all "
                "of them [llmbatch] io_queue."
            )


def hint_at_queue(settings: Settings, queue: str, warn: Callable[[str], None]) -> None:
    """Say that a mapped task is not on the queue of its kind: Airflow took it from the DAG alone."""
    if settings.io_queue not in (None, queue):
        warn(
            f"[llmbatch] io_queue is {settings.io_queue!r}, and this mapped task runs on {queue!r}: Airflow "
            f"takes the queue of such tasks from the DAG alone. Name it there: queue={settings.io_queue!r}."
        )


def host_of(settings: Settings) -> str:
    """Return this host's name, or ``""`` where files may be written from any host."""
    return "" if settings.single_host or settings.shared_filesystem else socket.gethostname()


def refuse_other_hosts(settings: Settings, what: str) -> None:
    """
    Refuse what lies on one host's disk when tasks may run on several.

    :raises ConfigurationError: naming what to set.
    """
    if settings.single_host or settings.shared_filesystem:
        return
    remote = [name for name in executors() if name not in LOCAL]
    if remote:
        raise ConfigurationError(
            f"{what} serves one host, but the executor is {', '.join(remote)}. Set [llmbatch] state_url and "
            "results_path to stores that all workers reach, or say single_host (all workers on one machine) "
            "or shared_filesystem (the paths lie on a disk that all share)."
        )


def executors() -> Iterator[str]:
    """Yield the class names of the executors that tasks may run on."""
    from airflow.sdk import conf

    if os.environ.get(_POD):
        yield "KubernetesExecutor"
    for name in _BETWEEN.split(conf.get("core", "executor")):
        yield _BEFORE.sub("", name.strip())
