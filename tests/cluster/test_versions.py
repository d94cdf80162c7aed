"""Old and new workers on one Redis, as in the middle of an upgrade: one set of limits for both."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_llmbatch.simulator.arrivals import max_in_window
from airflow_provider_llmbatch.simulator.server import running as simulator
from airflow_provider_llmbatch.simulator.settings import SimulatedKey, SimulatorSettings
from tests.operators.stage import Service
from tests.services import redis_server, workers

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PARTS = ("airflow_provider_llmbatch", "tests/services")
#: A build from before the lines in front of the limits knew what each had had.
EARLIER = "e4818bc"
LIMIT, WINDOW_S, ITEMS = 60, 4.0, 20
KEY = SimulatedKey(id="a", key="sk-upgrade-0123456789", account="team")


@pytest.fixture(scope="module")
def redis(tmp_path_factory) -> Iterator[str]:
    with redis_server.running(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


def other_scripts(folder: Path) -> Path:
    """Make a build that differs in every script, and so in their digests, and in its version."""
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    package = folder / "airflow_provider_llmbatch"
    for script in (package / "engine" / "state" / "redis" / "lua").glob("*.lua"):
        script.write_text(script.read_text() + "\n-- another build\n")
    init = package / "__init__.py"
    init.write_text(init.read_text().replace("__version__ = ", '__version__ = "99." + '))
    return folder


def earlier_commit(folder: Path) -> Path:
    """Take a build from the history, where this clone has one."""
    command = ["git", "archive", EARLIER, *PARTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"commit {EARLIER} is not in this clone")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("build", [other_scripts, earlier_commit])
def test_workers_of_two_builds_share_one_limit(build, redis, tmp_path):
    other = build(tmp_path / "build")
    settings = SimulatorSettings(rpm=10**6, tpm=10**9, window_s=WINDOW_S, latency_s=0.05, keys=(KEY,))
    with simulator(settings) as url:
        told = {
            **{"state": redis, "url": url, "key": KEY.key, "items": ITEMS, "max_tokens": 400, "hold": True},
            "extra": {
                **{"requests_per_minute": LIMIT, "window_s": WINDOW_S, "account": build.__name__},
                "max_in_flight": 20,
            },
        }
        started = [
            workers.start(root=root, name=f"w{n}", results=str(tmp_path / f"r{n}"), **told)
            for n, root in enumerate((ROOT, other, ROOT, other))
        ]
        workers.release(started)
        manifests = [workers.manifest(worker) for worker in started]
        arrivals = Service(url).arrivals()
    assert [manifest["counts"] for manifest in manifests] == [{"ok": ITEMS}] * 4
    assert len(arrivals) == 4 * ITEMS
    assert max_in_window([(arrival.time, 1) for arrival in arrivals], WINDOW_S) <= LIMIT


def test_a_newer_build_takes_over_what_an_older_one_was_doing(redis, tmp_path):
    """The fence of the newer try shuts the older one out, and frees its calls."""
    other = other_scripts(tmp_path / "build")
    with simulator(SimulatorSettings(rpm=10**6, tpm=10**9, latency_s=0.3)) as url:
        told = {
            **{
                "state": redis,
                "url": url,
                "items": 40,
                "max_tokens": 400,
                "name": "same",
                "results": str(tmp_path / "results"),
            },
            "extra": {"requests_per_minute": 10**6, "max_in_flight": 4, "account": "taken-over"},
        }
        older = workers.start(root=other, **told)
        while sum(arrival.status == 200 for arrival in Service(url).arrivals()) < 8:
            assert older.poll() is None
        older.kill()
        older.communicate()
        manifest = workers.manifest(workers.start(**told))
        arrivals = Service(url).arrivals()
    assert manifest["counts"] == {"ok": 40}
    assert manifest["resumed"] >= 8 - 4
    assert 0 <= len(arrivals) - 40 <= 4
