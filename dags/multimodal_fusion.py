"""
CT, slides and notes → findings of each note by a model → one embedding or prediction for each record.

The notes of a source go through a dispatch whose checked outputs join the other modalities as ``facts``.
Without a source a cohort of nobody is made, together with public files that packages carry, so that the DAG
can be tried out; with one, ``source`` names a JSONL file with ``id``, ``ct``, ``wsi``, ``notes``.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from airflow.sdk import DAG, Param, task
from pydantic import BaseModel, Field

from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator
from airflow_provider_llmbatch.operators.fusion import LLMBatchFusionOperator

PROMPT = "radiology_findings@1"

#: Small, so that a CPU is enough. Leave shape, spacing and patches out for the sizes of real studies.
SCHEMA = {
    "ct": {"kind": "ct", "shape": [16, 32, 32], "spacing_mm": [8, 9, 9]},
    "wsi": {"kind": "wsi", "patch_px": 64, "max_patches": 8},
    "notes": {"kind": "note"},
    "facts": {"kind": "facts"},
}


class Findings(BaseModel):
    """What a note says of masses."""

    mass: bool
    edge: Literal["smooth", "spiculated"] | None
    size_mm: float | None = Field(ge=0, le=500)


@task
def prepare(source: str | None, count: int, **context) -> dict[str, str]:
    """Make a cohort when there is no source, and write the notes of the source as items of a dispatch."""
    from airflow_provider_llmbatch.operators.arguments import own_folder
    from airflow_provider_llmbatch.settings import load_settings

    folder = Path(own_folder(context, load_settings(), apart=True))
    folder.mkdir(parents=True, exist_ok=True)
    records = Path(source) if source else rehearsal(folder, count)
    items = folder / "notes.jsonl"
    with open(records, encoding="utf-8") as lines, open(items, "w", encoding="utf-8") as file:
        for row in map(json.loads, lines):
            if isinstance(row.get("notes"), str) and row["notes"].strip():
                file.write(json.dumps({"id": row["id"], "vars": {"note": row["notes"]}}) + "\n")
    return {"records": str(records), "notes": str(items)}


def rehearsal(folder: Path, count: int) -> Path:
    """Write a cohort of nobody, a third of whose modalities are missing, and cases of real files."""
    from airflow_provider_llmbatch.simulator.cohort import make_cohort, public_cases

    records = make_cohort(folder / "cohort", count, seed=1, missing=0.33)
    with open(records, "a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in public_cases(folder / "public"))
    return records


with DAG(
    dag_id="multimodal_fusion",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    catchup=False,
    render_template_as_native_obj=True,
    tags=["llmbatch"],
    doc_md=__doc__,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=30)},
    params={
        "source": Param(
            None, type=["null", "string"], title="Source", description="JSONL; a rehearsal when empty."
        ),
        "count": Param(24, type="integer", minimum=1, title="Records of a rehearsal"),
        "llm": Param("gpt-4o-mini", type="string", title="Model that reads the notes"),
        "mode": Param(
            "embed", type="string", enum=["embed", "predict", "train", "evaluate"], title="What to do"
        ),
        "model": Param(None, type=["null", "string"], title="Folder of a model; train writes it"),
        "deid": Param(
            "refuse",
            type="string",
            enum=["refuse", "warn", "off"],
            title="What a finding of an identity does",
        ),
        "max_bad": Param(0.05, type="number", minimum=0, maximum=1, title="Share that may be quarantined"),
    },
) as dag:
    prepared = prepare("{{ params.source }}", "{{ params.count }}")
    findings = LLMBatchDispatchOperator(
        task_id="findings",
        source=prepared["notes"],
        prompt=PROMPT,
        model="{{ params.llm }}",
        output_type=Findings,
        budget_usd=5,
    )
    LLMBatchFusionOperator(
        task_id="fuse",
        source=prepared["records"],
        facts=findings.output,
        schema=SCHEMA,
        mode="{{ params.mode }}",
        model="{{ params.model }}",
        deid="{{ params.deid }}",
        max_bad_fraction="{{ params.max_bad }}",
        chunk_records=16,
    )
