"""
Train a model from a command line, without Airflow.

``python -m airflow_provider_llmbatch.engine.fusion.fit --source records.jsonl --model folder`` reads records
with a ``label`` and writes a model for ``predict``. Encoders stay as they are but for those that ``--train``
names; so those of images keep their random weights, and each record is encoded once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion.modes import run
from airflow_provider_llmbatch.engine.fusion.schema import read_schema
from airflow_provider_llmbatch.engine.fusion.spec import read_spec


def main(arguments: Sequence[str] | None = None) -> int:
    """Train a model."""
    given = _parser().parse_args(arguments)
    schema = read_schema(json.loads(given.schema) if given.schema.startswith(("{", "[")) else given.schema)
    kept = {"source": given.source, "facts": given.facts, "deid": given.deid, "seed": given.seed}
    policies = {name: {"frozen": name not in given.train} for name in schema.names}
    asked = {**kept, "schema": schema, "mode": "train", "model": given.model, "policies": policies}
    with tempfile.TemporaryDirectory(prefix="fit-") as place:
        spec = read_spec({**asked, "result_path": place, "training": {"head_epochs": given.epochs}})
        found = run(spec, lambda event: None, Clocks())["metrics"]
    print(f"fit: ok, {found['labelled']} records, loss {found['held_out_loss']:.3f}, model in {given.model}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fit", description=__doc__)
    parser.add_argument("--source", required=True, help="JSONL, CSV or Parquet with labels")
    parser.add_argument("--model", required=True, help="folder that the model is written to")
    parser.add_argument("--schema", default="ct+wsi+notes", help="name of a preset, or a schema as JSON")
    parser.add_argument("--facts", help="JSONL of facts by id")
    parser.add_argument("--deid", default="refuse", choices=("refuse", "warn", "off"))
    parser.add_argument("--train", nargs="*", default=(), help="modalities whose encoders are trained")
    parser.add_argument("--epochs", type=int, default=20, help="times that each record is seen")
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
