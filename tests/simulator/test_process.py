"""The simulators as processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from airflow_provider_llmbatch.simulator.__main__ import main
from airflow_provider_llmbatch.simulator.lean import LeanServer

PACKAGE = "airflow_provider_llmbatch.simulator"
BODY = {"model": "m-1", "messages": [{"role": "user", "content": "hello"}]}


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a process and the base URL that its first line names."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-m", *arguments], stdout=pipe, stderr=pipe, text=True) as started:
        line = started.stdout.readline() if started.stdout else ""
        try:
            assert line.startswith("simulator: listening on http://127.0.0.1:")
            assert line.endswith("/v1\n")
            yield started, line.split()[-1]
        finally:
            started.kill()


@pytest.mark.parametrize("module", [PACKAGE, f"{PACKAGE}.lean"])
def test_a_free_port_is_named_and_sigterm_ends_it_in_the_middle_of_a_call(module: str) -> None:
    with process(module, "--port", "0", "--latency", "30") as (started, url):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/chat/completions", json=BODY, timeout=0.2)
        started.terminate()
        _, errors = started.communicate(timeout=10)
        assert (started.returncode, errors) == (0, "")


def test_a_scenario_file_is_played(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("rules:\n  - match: {contains: hello}\n    reply: {status: 503}\n")
    with process(PACKAGE, "--port", "0", "--latency", "0", "--scenario", str(path)) as (_, url):
        assert httpx.post(f"{url}/chat/completions", json=BODY).status_code == 503


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scenario", "absent.yaml"], "simulator: scenario absent.yaml cannot be read"),
        (["--rpm", "0"], "simulator: rpm must be above 0, got 0"),
        (["--keys", "a"], "simulator: --keys: part 1 must read id=key"),
    ],
)
def test_a_wrong_command_line_ends_with_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(words)
    assert errors.count("\n") == 1


def test_the_lean_server_keeps_connections_and_counts() -> None:
    arguments = (f"{PACKAGE}.lean", "--port", "0", "--latency", "0", "--content", "four")
    with process(*arguments) as (_, url), httpx.Client() as http:
        for _ in range(3):
            reply = http.post(f"{url}/chat/completions", json=BODY)
            assert reply.json()["choices"][0]["message"]["content"] == "four"
        assert http.get(url).json() == {"answered": 3, "in_flight": 0, "max_in_flight": 1}
        refused = http.post(f"{url}/chat/completions", content=iter([b"{}"]))
        assert refused.status_code == 411


def test_the_lean_server_reads_a_body_that_comes_in_pieces() -> None:
    server = LeanServer("ok", 0.0)
    assert b"content-length: %d\r\n\r\n" % len(server.reply.partition(b"\r\n\r\n")[2]) in server.reply
    with process(f"{PACKAGE}.lean", "--port", "0", "--latency", "0") as (_, url), httpx.Client() as http:
        big = {"model": "m", "messages": [{"role": "user", "content": "x" * 2_000_000}]}
        assert http.post(f"{url}/chat/completions", json=big).status_code == 200


@pytest.mark.parametrize(
    ("module", "absent"),
    [(f"{PACKAGE}.server", "airflow"), (f"{PACKAGE}.__main__", "tiktoken"), (f"{PACKAGE}.lean", "aiohttp")],
)
def test_a_module_does_not_import_what_it_can_do_without(module: str, absent: str) -> None:
    code = f"import sys, {module}; sys.exit({absent!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0
