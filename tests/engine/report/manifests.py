"""Manifests, a plan and rows that the tests of this folder share."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from airflow_provider_llmbatch.engine.items import Chunk, Cost, ItemError, Outcome, PromptRef, Result, Usage
from airflow_provider_llmbatch.engine.summary import Estimate, Manifest, Plan

PROMPT = PromptRef(name="label", version="v3", sha="ab" * 32)
STARTED = 1_778_000_000.0


def manifest(**more: Any) -> Manifest:
    known: dict[str, Any] = {
        **{"result_path": "s3://lake/run-1", "state": "complete", "items": 100, "chunk": 0},
        "counts": {Outcome.OK: 90, Outcome.REFUSED: 6, Outcome.INVALID_OUTPUT: 4},
        "usage": Usage(prompt=10_000, cached=2_000, completion=1_000, reasoning=300),
        "cost": Cost(usd=Decimal("0.50")),
        "limits": {"granted_requests": 104, "granted_tokens": 12_000, "waited_s": 30.0, "use": 0.97},
        "latency_ms": {"p50": 800.0, "p95": 1500.0, "p99": 2500.0, "max": 4000.0},
        **{"prompt": PROMPT, "model": "small-1", "schema_digest": "cd" * 32, "fingerprint": "f0"},
        **{"started_at": STARTED, "ended_at": STARTED + 60},
    }
    return Manifest(**{**known, **more})


def second(**more: Any) -> Manifest:
    known: dict[str, Any] = {
        **{"chunk": 1, "fingerprint": "f1", "ended_at": STARTED + 90},
        "latency_ms": {"p50": 900.0, "p95": 1200.0, "p99": 2600.0, "max": 9000.0},
    }
    return manifest(**{**known, **more})


def plan(chunks: int = 2, **more: Any) -> Plan:
    known: dict[str, Any] = {
        **{"source": "s3://lake/items.jsonl", "items": 100 * chunks, "bad_items": 0},
        **{"prompt": PROMPT, "model": "small-1"},
        **{"prompt_tokens": 9_000 * chunks, "output_tokens": 1_100 * chunks},
        "chunks": tuple(
            Chunk(
                number=number,
                start=100 * number,
                stop=100 * (number + 1),
                offset=0,
                sha="",
                prompt_tokens=9_000,
                output_tokens=1_100,
            )
            for number in range(chunks)
        ),
        "estimate": Estimate(
            usd=Decimal("1.25"),
            usd_low=Decimal(1),
            usd_high=Decimal(2),
            seconds=85.0,
            binds="tokens_per_minute",
        ),
    }
    return Plan(**{**known, **more})


def failed(number: int, outcome: Outcome = Outcome.REFUSED, **more: Any) -> Result:
    known: dict[str, Any] = {
        **{"index": number, "id": f"item-{number}", "outcome": outcome},
        "error": ItemError(kind="refused", message=f"The model declined {number}."),
    }
    return Result(**{**known, **more})
