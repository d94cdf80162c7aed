"""What came of it, from the service's side and from storage: nothing lost, no window over, paid once."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.errors import InputError
from airflow_provider_llmbatch.simulator.arrivals import doubles, use_of_limit
from tests.cluster.stack import Simulator

#: Most bytes of what a task returns, and of its log.
XCOM_BYTES, LOG_BYTES = 8 * 1024, 2 * 1024 * 1024


@dataclass(frozen=True)
class Account:
    """The figures of a run."""

    items: int
    rows: int
    outcomes: dict[str, int]
    arrivals: int
    again: int
    cut: int
    possibly_again: int
    windows_over: int
    late_arrivals: int
    metrics: int
    use: float
    xcom_bytes: int
    log_bytes: int

    def lines(self) -> list[str]:
        """Put them into words."""
        return [
            f"rows {self.rows:,} of {self.items:,}, lost {self.items - self.rows}; "
            + ", ".join(f"{outcome} {count:,}" for outcome, count in sorted(self.outcomes.items())),
            f"calls {self.arrivals:,}; paid twice {self.again}, of {self.cut} that were open where a fault "
            f"cut them off; told as possible: {self.possibly_again}",
            f"windows over a limit {self.windows_over}, late arrivals {self.late_arrivals}; "
            f"use of the limit, pauses included, {self.use:.0%}",
            f"largest manifest {self.xcom_bytes:,} bytes, largest log of a try {self.log_bytes:,} bytes",
        ]

    def faults(self) -> list[str]:
        """Return what is not as it must be."""
        wrong = {
            "items without a row": self.rows != self.items,
            "outcomes other than ok": set(self.outcomes) != {"ok"},
            "counts that do not add up": sum(self.outcomes.values()) != self.items,
            "more calls paid twice than were open": self.again > self.cut,
            "paid twice without a word": self.again > self.possibly_again,
            "windows over a limit": self.windows_over > self.late_arrivals,
            "no metrics": self.metrics == 0,
            "a manifest too large": self.xcom_bytes > XCOM_BYTES,
            "a log too large": self.log_bytes > LOG_BYTES,
        }
        return [words for words, is_so in wrong.items() if is_so]


def judge(
    *,
    manifests: list[dict[str, Any]],
    items: int,
    service: Simulator,
    cut: int,
    logs: Path,
    datagrams: Iterable[str],
) -> Account:
    """
    Draw up the account of a run.

    :param manifests: what its dispatch tasks have returned.
    :param cut: calls that were open where a fault cut them off.
    :param logs: folder of the logs of its dispatch tasks.
    :param datagrams: metrics that have come so far.
    """
    folder = open_folder(manifests[0]["result_path"], read_only=True)
    found = list(results(folder))
    arrivals, stats = service.arrivals(), service.stats()
    limits, over = stats["limits"], stats["windows_arrived"]
    admitted = [(arrival.time, 1) for arrival in arrivals if arrival.admitted]
    try:
        use = use_of_limit(admitted, limits["window_s"], limits["rpm"])
    except InputError:
        use = 0.0
    return Account(
        items=items,
        rows=len({result.index for result in found}),
        outcomes=dict(Counter(str(result.outcome) for result in found)),
        arrivals=len(arrivals),
        again=sum(count - 1 for count in doubles(arrivals).values()),
        cut=cut,
        possibly_again=sum(manifest["possible_double_paid"] for manifest in manifests),
        windows_over=over["requests_over"] + over["tokens_over"],
        late_arrivals=_counted(datagrams, "late_arrivals"),
        metrics=_counted(datagrams, "items.ok"),
        use=use,
        xcom_bytes=max(len(json.dumps(manifest)) for manifest in manifests),
        log_bytes=max((path.stat().st_size for path in logs.rglob("*.log")), default=0),
    )


def _counted(datagrams: Iterable[str], metric: str) -> int:
    """Add up a counter of the dispatch tasks."""
    name = re.compile(rf"^airflow\.llmbatch\.[^.]+\.dispatch\.{re.escape(metric)}:(\d+)\|c", re.MULTILINE)
    return sum(int(found) for text in list(datagrams) for found in name.findall(text))
