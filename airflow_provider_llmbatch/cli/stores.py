"""Checks of what workers share: the state, and the storage of results."""

from __future__ import annotations

import contextlib
import os
import secrets as random
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from airflow_provider_llmbatch.cli.findings import Finding, of_error
from airflow_provider_llmbatch.errors import ConfigurationError, LLMBatchError
from airflow_provider_llmbatch.operators import surroundings
from airflow_provider_llmbatch.operators.bridge import Bridge

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.results.folder import Folder
    from airflow_provider_llmbatch.engine.state.redis.examine import Examined
    from airflow_provider_llmbatch.settings import Settings

#: Share of the server's memory above which it is said to be nearly full.
FULL = 0.8
#: Seconds of one operation on an object store.
_OPERATION_S = 15.0


def check_state(settings: Settings, *, secrets: set[str]) -> Iterator[Finding]:
    """
    Look at the state.

    :param secrets: gets its password, so that nothing shows it.
    """
    from airflow.sdk.exceptions import AirflowException

    from airflow_provider_llmbatch.hooks.state import redis_url

    try:
        address = redis_url(settings.redis_conn_id) if settings.redis_conn_id else settings.state_url
    except (ConfigurationError, AirflowException) as error:
        yield of_error("state", error)
        return
    if address.startswith("sqlite"):
        yield from _file(settings, _path(address))
    else:
        password = urlsplit(address).netloc.rpartition("@")[0].partition(":")[2]
        secrets.update((password, unquote(password)))
        yield from _server(settings, urlsplit(address)._replace(query="").geturl())


def _path(address: str) -> Path:
    return Path("/" + address.partition("://")[2].lstrip("/"))


def _file(settings: Settings, path: Path) -> Iterator[Finding]:
    what = "state"
    try:
        surroundings.refuse_other_hosts(settings, "State in a SQLite file")
        if path.exists():
            _standing(settings)
            yield Finding(level="ok", what=what, found=f"SQLite file {path}, for one host")
            return
    except LLMBatchError as error:
        yield of_error(what, error)
        return
    parent = next(folder for folder in path.parents if folder.exists())
    if os.access(parent, os.W_OK | os.X_OK):
        yield Finding(level="ok", what=what, found=f"SQLite file {path}, which the first task makes")
    else:
        yield Finding(
            level="fail",
            what=what,
            found=f"SQLite file {path} cannot be made, as {parent} is not writable for this user",
            remedy="set [llmbatch] state_url to a file that is, or to Redis",
        )


def _standing(settings: Settings) -> None:
    async def main() -> None:
        state = surroundings.open_state(settings)
        try:
            await state.standing("doctor")
        finally:
            await state.close()

    Bridge[None]().run(main)


def _server(settings: Settings, address: str) -> Iterator[Finding]:
    where = address.rpartition("@")[2].rpartition("//")[2]
    try:
        found = _examined(settings)
    except LLMBatchError as error:
        yield Finding(
            level="fail",
            what="state",
            found=f"{where}: {str(error).rstrip('.')}",
            remedy="start it, or correct [llmbatch] redis_conn_id or state_url; nothing is sent without it",
        )
        return
    version = found.info.get("redis_version", "of a version that it does not tell")
    yield Finding(
        level="ok", what="state", found=f"Redis {version} at {where} answers in {found.call_ms:.0f} ms"
    )
    yield from _scripts(found)
    yield _eviction(found)
    yield _persistence(found)
    if (memory := _memory(found)) is not None:
        yield memory


def _examined(settings: Settings) -> Examined:
    from airflow_provider_llmbatch.engine.state.redis import RedisState
    from airflow_provider_llmbatch.engine.state.redis.examine import Examined, examine

    async def main() -> Examined:
        state = surroundings.open_state(settings)
        try:
            if not isinstance(state, RedisState):
                raise ConfigurationError(f"The state is a {type(state).__name__}; set state_url to Redis.")
            return await examine(state)
        finally:
            await state.close()

    return Bridge[Examined]().run(main)


def _scripts(found: Examined) -> Iterator[Finding]:
    from airflow_provider_llmbatch.engine.state.redis.examine import OLDEST

    if found.version is not None and found.version < OLDEST:
        yield Finding(
            level="fail",
            what="state version",
            found=f"its scripts cannot read the clock and then write before {'.'.join(map(str, OLDEST))}",
            remedy="use a newer server",
        )
    if found.refusal:
        yield Finding(
            level="fail",
            what="state scripts",
            found=f"a script that writes is refused: {found.refusal}",
            remedy="allow its user the commands that docs/operations.md lists, on a primary with room",
        )
    else:
        yield Finding(level="ok", what="state scripts", found="a script reads the clock and writes")


def _eviction(found: Examined) -> Finding:
    policy = found.info.get("maxmemory_policy")
    if policy == "noeviction":
        return Finding(level="ok", what="state eviction", found="noeviction: no key is thrown away")
    if policy is None:
        return Finding(
            level="unknown",
            what="state eviction",
            found="the server does not tell its maxmemory-policy",
            remedy="ask who runs it: it should be noeviction",
        )
    return Finding(
        level="warn",
        what="state eviction",
        found=f"{policy}: when it is full, limits, budgets and claims are forgotten",
        remedy="set maxmemory-policy to noeviction, or give [llmbatch] a server of its own",
    )


def _persistence(found: Examined) -> Finding:
    enabled = found.info.get("aof_enabled")
    if enabled == "1":
        return Finding(level="ok", what="state persistence", found="appends to a file")
    if enabled is None:
        remedy = "ask who runs it: appendonly should be yes"
        return Finding(
            level="unknown", what="state persistence", found="the server does not tell", remedy=remedy
        )
    return Finding(
        level="warn",
        what="state persistence",
        found="does not append to a file: after a restart every window starts full, and claims are lost",
        remedy="set appendonly to yes",
    )


def _memory(found: Examined) -> Finding | None:
    used, most = (int(found.info.get(name, "0") or 0) for name in ("used_memory", "maxmemory"))
    if not most:
        return None
    full = used / most > FULL
    return Finding(
        level="warn" if full else "ok",
        what="state memory",
        found=f"{used / 2**20:,.0f} of {most / 2**20:,.0f} MiB are in use",
        remedy="give it more: a full server takes no grants, and all batches wait" if full else "",
    )


def check_parked(settings: Settings) -> Iterator[Finding]:
    """Say which credentials and endpoints no worker uses for now."""
    from airflow_provider_llmbatch.operators.parked import parked

    address = settings.state_url
    if not settings.redis_conn_id and address.startswith("sqlite") and not _path(address).exists():
        return
    try:
        closed = parked()
    except LLMBatchError:
        # What is wrong with the state has been said.
        return
    for one in closed:
        back = "until a person opens it" if one.until is None else "and tried about once a minute"
        yield Finding(
            level="warn",
            what="parked",
            found=f"{one.gate} is not used by anybody, {back}: {one.reason or 'no reason is known'}",
            remedy=f"mend it, then: airflow llmbatch unpark {shlex.quote(one.gate)}",
        )
    if not closed:
        yield Finding(level="ok", what="parked", found="no credential and no endpoint")


def check_storage(settings: Settings) -> Iterator[Finding]:
    """Look whether results can be stored at ``results_path``, and found by other workers."""
    from airflow_provider_llmbatch.engine.locations import is_local

    what, place = "storage", settings.results_path
    if is_local(place):
        try:
            surroundings.refuse_other_hosts(settings, f"Storage at the local path {place}")
        except ConfigurationError as error:
            yield of_error(what, error)
            return
    try:
        _store(_folder(place))
    # drivers and Airflow raise errors of their own making; all of them mean that nothing can be stored
    except Exception as error:
        yield of_error(what, error)
        return
    yield Finding(level="ok", what=what, found=f"{place} takes files, gives them back, and replaces none")
    if is_local(place) and settings.shared_filesystem:
        yield Finding(
            level="unknown",
            what=what,
            found="whether all workers share this path cannot be seen from here; shared_filesystem says so",
            remedy="run this command on each of them",
        )


def _folder(place: str) -> Folder:
    from airflow_provider_llmbatch.engine.locations import is_local
    from airflow_provider_llmbatch.engine.results.local import LocalFolder
    from airflow_provider_llmbatch.engine.results.objects import ObjectFolder, locate
    from airflow_provider_llmbatch.operators.storage import filesystem_of

    if is_local(place):
        return LocalFolder(place.rpartition("://")[2])
    files, inside = locate(place, filesystem_of(place))
    # Who waits for an answer does not want to see it tried for minutes.
    return ObjectFolder(place, files, inside, operation_s=_OPERATION_S, sleep=lambda _: None)


def _store(folder: Folder) -> None:
    """Write a file, read it, try to write another in its place, and remove it."""
    name, content = f"doctor-{random.token_hex(8)}.json", random.token_hex(8).encode()
    try:
        folder.put(name, iter([content]))
        with folder.open(name) as file:
            if file.read() != content:
                raise ConfigurationError(
                    f"{folder.uri} gives back other bytes than it took; use a store that does not."
                )
        with contextlib.suppress(FileExistsError):
            folder.put(name, iter([b"another"]))
            raise ConfigurationError(
                f"{folder.uri} lets a file be replaced by one that must be new; use a store that does not."
            )
    finally:
        folder.remove(name)
