"""
Two versions of a prompt on trial, with real questions and a real model, served on this machine.

``python -m airflow_provider_llmbatch.simulator.demo_rollout`` serves the model of the demo ``demo_model`` and
runs the DAG ``prompt_rollout`` once: one round. Running it again is the next round. The questions and their
answers are the trivia of the PyPI package ``chatterbot-corpus`` (BSD), which is installed beside the model's
server and read there. Nothing is fetched at run time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.engine.rollout.steps import Steps
from airflow_provider_llmbatch.engine.rollout.verdict import Comparison
from airflow_provider_llmbatch.simulator.demo import ROOT, Demo
from airflow_provider_llmbatch.simulator.demo_model import EXTRA, MODEL, join, served

NAME = "demo-rollout"
DAG_ID, ROLLOUT = "prompt_rollout", "shorter"
#: Questions of the golden set, and of production.
GOLDEN, LIVE = 80, 30
#: New answers that a metric needs.
MIN_NEW = 30
#: The weights carry no chat format, and were trained on none. Under these headings the model goes on with an
#: answer; under others with further questions.
CHAT_FORMAT, HEADING = "alpaca", "###"
#: A model of this size repeats itself without end, unless it is held back; its first sentence is enough.
PARAMS = {"max_tokens": 60, "repeat_penalty": 1.3, "stop": [HEADING, ". ", ".\n"]}
#: Pairs that are shown side by side.
SHOWN = 5
COLUMNS = (
    *("metric", "verdict", "base", "candidate", "effect, 95 % interval", "threshold"),
    *("p (Holm)", "power", "compared"),
)

#: Runs in the model's own environment.
_READ = """
import chatterbot_corpus, json, pathlib, yaml
path = pathlib.Path(chatterbot_corpus.__file__).parent / "data" / "english" / "trivia.yml"
print(json.dumps(yaml.safe_load(path.read_text("utf-8"))["conversations"]))
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(prog=NAME, description=__doc__.strip().splitlines()[0])
    parser.add_argument(
        "--python",
        default=".venv-model/bin/python",
        help="interpreter that has server, weights and questions",
    )
    python = parser.parse_args(arguments).python
    home = ROOT / "build" / NAME
    home.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    golden, live = _written(questions(_conversations(python)), home)
    # The weights are those of the other demo, and as large as they are, they are joined once.
    (ROOT / "build" / "demo-model").mkdir(exist_ok=True)
    weights, terms = join(python, ROOT / "build" / "demo-model")
    conf = {"model": MODEL, "source": str(live), "golden": str(golden), "min_new": MIN_NEW}
    with served(python, weights, home / "server.log", CHAT_FORMAT) as url:
        connection = {"conn_type": "llmbatch", "host": url, "extra": EXTRA}
        demo = Demo(name=NAME, connection=connection, conf=conf, dag_id=DAG_ID)
        demo.say(f"endpoint {url}, model {MODEL}, {GOLDEN} questions of both versions, {LIVE} of production")
        demo.say(f"the weights stand under the Gemma Terms of Use, not under this package's licence: {terms}")
        status = demo.run_dag()
    if status:
        demo.say(f"FAILED, status {status}; look into {demo.home / 'run.log'}")
        return status
    _show(demo, golden)
    demo.say(f"ok, {time.monotonic() - began:.0f} s")
    return 0


def _conversations(python: str) -> Sequence[Any]:
    """Return the corpus as it stands."""
    done = subprocess.run([python, "-c", _READ], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{NAME}: FAILED, the questions cannot be read:\n{done.stderr[-2000:]}")
    found: Sequence[Any] = json.loads(done.stdout)
    return found


def questions(conversations: Sequence[Any]) -> dict[str, list[str]]:
    """Return the questions of the corpus, each with its right answers."""
    found: dict[str, list[str]] = {}
    for said in conversations:
        # A few entries are single lines that lost their place.
        if isinstance(said, list) and len(said) > 1 and all(isinstance(line, str) for line in said):
            found.setdefault(said[0].strip(), []).extend(line.strip() for line in said[1:])
    return found


def _written(asked: Mapping[str, Sequence[str]], home: Path) -> tuple[Path, Path]:
    """Write the golden set and the production items; return their paths."""
    rows = [
        {"id": f"trivia-{number:03}", "vars": {"question": question}, "reference": answers, "params": PARAMS}
        for number, (question, answers) in enumerate(asked.items())
    ]
    golden, live = home / "golden.jsonl", home / "live.jsonl"
    for path, part in ((golden, rows[:GOLDEN]), (live, rows[GOLDEN : GOLDEN + LIVE])):
        path.write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    return golden, live


def _show(demo: Demo, golden: Path) -> None:
    """Print what the round has found, and a few pairs of answers."""
    steps = Steps(open_folder(str(demo.results.parent / "~rollouts" / DAG_ID / ROLLOUT), read_only=True))
    standing = steps.standing()
    print(f"\nRound {steps.rounds[-1].number}: {standing.state}, {standing.rate:.0%} of the units\n")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for one in steps.rounds[-1].comparisons:
        print(row(one))
    print("\n| question | reference | base | candidate |\n|---|---|---|---|")
    for words in _pairs(demo, golden):
        print(f"| {' | '.join(words)} |")
    print()


def row(one: Comparison) -> str:
    """Return a line of the table."""
    means = [f"{mean:.3g}" if mean is not None else "" for mean in (one.mean_base, one.mean_candidate)]
    found = [""] * 4
    if one.effect is not None:
        interval = f"{one.effect:+.3g} [{one.low:+.3g}, {one.high:+.3g}]"
        found = [interval, f"{one.threshold:.3g}", f"{one.p_holm:.2g}", f"{one.power:.2f}"]
    count = f"{one.base} pairs" if one.paired else f"{one.base} and {one.candidate}"
    return f"| {' | '.join([one.metric, str(one.verdict), *means, *found, count])} |"


def _pairs(demo: Demo, golden: Path) -> Iterator[tuple[str, ...]]:
    """Yield question, reference and both answers of the first items."""
    newest = max(demo.results.glob("*/golden_candidate"), key=lambda path: path.stat().st_mtime).parent
    arms = [
        {row.id: row for row in results(open_folder(str(newest / f"golden_{arm}"), read_only=True))}
        for arm in ("base", "candidate")
    ]
    for line in golden.read_text(encoding="utf-8").splitlines()[:SHOWN]:
        item: dict[str, Any] = json.loads(line)
        answers = (str(arm[item["id"]].output or arm[item["id"]].outcome) for arm in arms)
        yield item["vars"]["question"], item["reference"][0], *(" ".join(text.split()) for text in answers)


if __name__ == "__main__":
    sys.exit(main())
