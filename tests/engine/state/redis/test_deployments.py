"""Cluster and Sentinel: the same state on other deployments."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.state.protocols import Need, Settlement, Standing
from airflow_provider_llmbatch.engine.state.redis import RedisState, connect
from airflow_provider_llmbatch.errors import ConfigurationError, StateUnreachableError
from tests.services.redis_server import Server, cluster, free_port, running


async def test_on_a_cluster_all_keys_of_a_take_share_a_slot(tmp_path: Path, scope_of):
    """P05."""
    with cluster(tmp_path) as node:
        state = RedisState(connect(node.url.replace("redis://", "redis+cluster://").removesuffix("/0")))
        scope = scope_of(usd=1000)
        taken = await state.take(scope, [Need(tokens=10, micro_usd=5)] * 2)
        await state.take(
            scope, [], [Settlement(grant=grant, tokens=8, micro_usd=3) for grant in taken.grants]
        )
        await state.throttle(scope, 0.01)
        await state.rebuild(scope, {"budget/x": 100})
        await state.report(Standing(owner="d/r/t/-1", result_path="x", done=1, items=2))
        levels = {level.key: level.used for level in await state.levels(scope)}
        fence = await state.next("d/r/t/-1")
        standing = await state.standing("d/r/t/-1")
        await state.close()
    assert len(taken.grants) == 2
    assert levels == {"m/requests": 2, "m/tokens": 20, "budget/x": 100}
    assert fence == 1
    assert standing is not None
    assert standing.items == 2


async def test_after_a_sentinel_failover_takes_go_on(tmp_path: Path, scope_of):
    with running(tmp_path / "master") as master:
        replica = Server(tmp_path / "replica", "--replicaof", "127.0.0.1", str(master.port))
        sentinel = _Sentinel(tmp_path / "sentinel", master)
        try:
            replica.start()
            sentinel.start(replica)
            replica.until("master_link_status:up", "info", "replication")
            state = RedisState(connect(f"redis+sentinel://127.0.0.1:{sentinel.port}/main/0"))
            scope = scope_of(window_s=60.0, requests=120)
            before = await state.take(scope, [Need(tokens=1)])
            assert master.cli("wait", "1", "10000") == "1"
            master.kill()
            after = await _until_granted(state, scope, 40.0)
            levels = {level.key: level.used for level in await state.levels(scope)}
            await state.close()
        finally:
            replica.kill()
            sentinel.kill()
    assert len(before.grants) == 1
    assert after
    assert levels["m/requests"] >= 2, "the replica knows what the master granted"


async def _until_granted(state: RedisState, scope, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            taken = await state.take(scope, [Need(tokens=1)])
        except StateUnreachableError:
            await asyncio.sleep(0.1)
            continue
        if taken.grants:
            return True
        await asyncio.sleep(taken.wait_s)
    return False


class _Sentinel:
    """A sentinel that fails over within seconds."""

    def __init__(self, folder: Path, master: Server) -> None:
        self.port = free_port()
        self._folder, self._master = folder, master
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, replica: Server) -> None:
        self._folder.mkdir()
        config = self._folder / "sentinel.conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {self._master.port} 1\n"
            "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 5000\n"
        )
        self._process = subprocess.Popen(
            ["redis-server", str(config), "--sentinel"], stdout=subprocess.DEVNULL, cwd=self._folder
        )
        deadline = time.monotonic() + 30
        while str(replica.port) not in self._cli("sentinel", "replicas", "main"):
            if time.monotonic() > deadline:
                raise RuntimeError("the sentinel does not find the replica")

    def _cli(self, *words: str) -> str:
        command = ["redis-cli", "-p", str(self.port), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.mark.parametrize(
    "url", ["http://x", "redis+sentinel://h:1/", "redis://h:port/0", "redis+sentinel:///main"]
)
def test_an_address_that_cannot_be_read_is_refused_without_its_password(url: str):
    with pytest.raises(ConfigurationError, match="write it like one of") as refused:
        connect(url.replace("//", "//:s3cret-canary@"))
    assert "s3cret-canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("policy", "words"), [("noeviction", None), ("allkeys-lru", "maxmemory-policy allkeys-lru")]
)
async def test_a_server_that_throws_keys_away_is_warned_about(tmp_path: Path, policy: str, words: str | None):
    with running(tmp_path, "--maxmemory-policy", policy) as server:
        state = RedisState(connect(server.url))
        told = await state.warning()
        await state.close()
    assert told is None if words is None else words in str(told)
