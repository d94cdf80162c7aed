"""A worker whose sockets and threads gevent has replaced."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("gevent")

TASK = """
from gevent import monkey
monkey.patch_all()
import sys
from pathlib import Path
from tests.operators.stage import Service, Stage
stage = Stage(Path(sys.argv[1]), Service(sys.argv[2]))
try:
    stage.run(stage.dispatch(source=stage.items(2)))
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_a_task_in_a_gevent_worker_is_refused_before_anything_is_sent(stage):
    done = subprocess.run(
        [sys.executable, "-c", TASK, str(stage.folder), stage.service.url],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "AirflowFailException gevent has replaced socket and threading in this worker" in done.stdout
    assert "set [celery] pool to prefork" in done.stdout
    assert stage.service.arrivals() == []


def test_gevent_that_is_only_imported_does_no_harm(stage):
    import gevent.monkey

    assert not gevent.monkey.is_module_patched("socket")
    assert stage.run(stage.dispatch(source=stage.items(2)))["counts"] == {"ok": 2}
