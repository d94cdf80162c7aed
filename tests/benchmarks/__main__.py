"""
``python -m tests.benchmarks``: measure, print a table, write ``build/bench.json``.

``--only NAME`` measures one thing (as often as given), ``--quick`` with so few items that the figures only
show that everything works.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks import (
    counting,
    limits,
    memory,
    planning,
    redis_state,
    resume,
    rollouts,
    seed,
    throughput,
)
from tests.benchmarks.machine import facts

BENCHMARKS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "counting": counting.measure,
    "planning": planning.measure,
    "rollouts": rollouts.measure,
    "throughput": throughput.measure,
    "resume": resume.measure,
    "seed": seed.measure,
    "memory": memory.measure,
    "redis": redis_state.measure,
    "limits": limits.measure,
}
#: What a figure has to be, where that was said: at least, or at most.
TARGETS: Mapping[str, tuple[str, float]] = {
    "throughput_ratio": (">=", 0.45),
    "cpu_ms_per_item": ("<=", 0.9),
    "count_per_s": (">=", 10_000),
    "memory_growth_mb": ("<=", 30),
    "resume_s": ("<=", 20),
    "plan_100k_s": ("<=", 15),
    "rollout_paused_by_mistake": ("<=", 0.05),
    "rollout_paused_rightly": (">=", 0.95),
    "rollout_grade_s": ("<=", 5),
    "rollout_bertscore_s": ("<=", 90),
    "rollout_compare_s": ("<=", 0.1),
    "rollout_compare_tied_s": ("<=", 5),
    "seed.ours.errors_percent": ("<=", 0),
    "seed.ours.status_429": ("<=", 0),
    "seed.ours.cost_off_plan_most_percent": ("<=", 3),
    "redis.added_ms_p50": ("<=", 1.5),
    "redis.added_ms_p99": ("<=", 8),
    "redis.throughput_ratio": (">=", 0.8),
    "redis.takes_per_s": (">=", 5_000),
    "redis.memory_mb": ("<=", 20),
    "redis.memory_claims_mb": ("<=", 160),
    "limits.over": ("<=", 0),
    "limits.use": (">=", 0.95),
    "limits.fairness": ("<=", 1.5),
}
OUTPUT = Path("build") / "bench.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and return the exit status: a target that is missed is told, and fails nothing."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("--only", action="append", choices=tuple(BENCHMARKS), help="measure only this")
    parser.add_argument("--quick", action="store_true", help="few items: shows that it works, not how fast")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args(arguments)
    found: dict[str, Any] = {**facts(), "quick": given.quick, "took_s": {}}
    print(f"{found['machine']}, Python {found['python']}, load {found['load']}", flush=True)
    for name in given.only or BENCHMARKS:
        began = time.monotonic()
        figures = BENCHMARKS[name](quick=given.quick)
        found |= figures
        found["took_s"][name] = round(time.monotonic() - began, 1)
        print(f"\n{name} ({found['took_s'][name]} s)")
        for line in _table(figures, judged=not given.quick):
            print(f"  {line}", flush=True)
    found["load_after"] = facts()["load"]
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten to {given.output}, load {found['load_after']}")
    return 0


def _table(figures: Mapping[str, Any], *, judged: bool) -> Iterator[str]:
    for name, value in _flat(figures):
        target = TARGETS.get(name) if judged else None
        verdict = "" if target is None else f"   {target[0]} {target[1]:g}: {_verdict(value, *target)}"
        yield f"{name:40} {_shown(value):>22}{verdict}"


def _flat(figures: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _verdict(value: float, kind: str, bound: float) -> str:
    met = value >= bound if kind == ">=" else value <= bound
    return "met" if met else "MISSED"


if __name__ == "__main__":
    sys.exit(main())
