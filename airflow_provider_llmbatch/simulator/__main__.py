"""``python -m airflow_provider_llmbatch.simulator``."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.simulator.scenario import read_scenario
from airflow_provider_llmbatch.simulator.server import serve
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings, read_keys


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status."""
    try:
        settings = read_settings(arguments)
        asyncio.run(serve_until_told(settings))
    except (ConfigurationError, OSError) as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 2
    return 0


def read_settings(arguments: Sequence[str] | None = None) -> SimulatorSettings:
    """Return the settings that the command line describes."""
    given = _parser().parse_args(arguments)
    return SimulatorSettings(
        host=given.host,
        port=given.port,
        rpm=given.rpm,
        tpm=given.tpm,
        window_s=given.window,
        quantum_s=given.quantum,
        burst=given.burst,
        counts=given.counts,
        tell_limits=given.tell_limits == "yes",
        failed_counts=given.failed_count == "yes",
        per_model=given.per_model == "yes",
        latency_s=given.latency,
        jitter=given.jitter,
        keys=read_keys(given.keys),
        models=tuple(filter(None, given.models.split(","))),
        model_window=given.model_window,
        count_tokens=given.count_tokens,
        output_words=given.output_words,
        scenario=read_scenario(given.scenario) if given.scenario else None,
    )


async def serve_until_told(settings: SimulatorSettings) -> None:
    """Serve until a signal asks to end; the first line printed names the base URL."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, over.set)
    async with serve(settings) as url:
        print(f"simulator: listening on {url}", flush=True)
        await over.wait()


def _parser() -> argparse.ArgumentParser:
    plain = SimulatorSettings()
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_llmbatch.simulator",
        description="An OpenAI-compatible server with real admission control and scripted faults.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default=plain.host, help="address to listen on")
    add("--port", type=int, default=8089, help="0 takes a free one")
    add("--rpm", type=int, default=plain.rpm, help="requests that a window admits, per account")
    add("--tpm", type=int, default=plain.tpm, help="tokens that a window admits, per account")
    add("--window", type=float, default=plain.window_s, help="seconds of the sliding window")
    add("--quantum", type=float, default=plain.quantum_s, help="seconds of the quanta inside it")
    add("--burst", type=float, help="times its even share that a quantum admits; without it quanta are open")
    add("--counts", choices=("reserved", "used"), default=plain.counts, help="tokens that a call takes")
    add(
        "--tell-limits", choices=("yes", "no"), default="yes", help="whether replies have x-ratelimit headers"
    )
    add("--failed-count", choices=("yes", "no"), default="no", help="whether a 429 takes a request")
    add("--per-model", choices=("yes", "no"), default="no", help="whether each model has its own limits")
    add("--latency", type=float, default=plain.latency_s, help="mean seconds of a call")
    add("--jitter", type=float, default=plain.jitter, help="spread of the latency, 0 to 1")
    add("--keys", default="", help="id=key or id@account=key, with commas; without it every key is let in")
    add("--models", default="", help="models that exist, with commas; without it every name passes")
    add("--model-window", type=int, help="tokens of prompt and output cap that a model takes")
    add("--count-tokens", choices=("estimate", "o200k"), default=plain.count_tokens, help="how text counts")
    add("--output-words", type=int, default=plain.output_words, help="mean length of a free-text reply")
    add("--scenario", help="YAML file with scripted faults")
    return parser


if __name__ == "__main__":
    sys.exit(main())
