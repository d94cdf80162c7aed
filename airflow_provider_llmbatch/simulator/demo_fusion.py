"""
Fusion in one command: a model is fitted on a cohort of nobody, and a real Airflow predicts another one.

``python -m airflow_provider_llmbatch.simulator.demo_fusion`` runs the DAG ``multimodal_fusion`` on CT, slides
and notes, public files among them, with the simulator in the place of the model that reads the notes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.simulator.cohort import WITH, make_cohort
from airflow_provider_llmbatch.simulator.demo import Demo

DAG_ID = "multimodal_fusion"
#: Records that the model is fitted on, and that it predicts.
TRAIN, TEST = 96, 48
SCHEMA = {
    "ct": {"kind": "ct", "shape": [16, 32, 32], "spacing_mm": [8, 9, 9]},
    "wsi": {"kind": "wsi", "patch_px": 64, "max_patches": 8},
    "notes": {"kind": "note"},
    "facts": {"kind": "facts"},
}
FOUND: Mapping[str, Any] = {"mass": True, "edge": "spiculated", "size_mm": None}
NOTHING: Mapping[str, Any] = {"mass": False, "edge": None, "size_mm": None}


def main() -> int:
    """Run the demo; returns the exit status."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fusion-") as place, _reader(Path(place)) as url:
        connection = {"conn_type": "llmbatch", "host": url, "password": "sk-simulated"}
        model = Path.cwd() / "build" / "fusion" / "model"
        conf = {"mode": "predict", "model": str(model), "count": TEST, "deid": "warn", "max_bad": 0.1}
        demo = Demo(name="fusion", connection=connection, conf=conf, dag_id=DAG_ID)
        demo.say(f"fitting a model on {TRAIN} made-up records; encoders of images stay random")
        if not _fitted(Path(place), model):
            demo.say("FAILED, the model could not be fitted")
            return 1
        moment = time.time()
        status = demo.run_dag()
    manifest = _manifest(demo, moment)
    if status or manifest is None:
        demo.say(f"FAILED, status {status}; look into {demo.home / 'run.log'}")
        return status or 1
    _show(demo, manifest)
    counts, score = manifest["counts"], _auroc(demo, manifest)
    demo.say(
        f"ok, {counts['ok']} of {counts['total']} records predicted, AUROC {score:.2f} on the made-up ones, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 0


def _fitted(place: Path, model: Path) -> bool:
    """Fit a model, in a process of its own; its facts are what the simulator says of such notes."""
    records = make_cohort(place / "train", TRAIN, seed=7)
    with open(place / "facts.jsonl", "w", encoding="utf-8") as file:
        for row in map(json.loads, records.read_text("utf-8").splitlines()):
            found = any(words in row.get("notes", "") for words in WITH)
            file.write(json.dumps({"id": row["id"], "facts": FOUND if found else NOTHING}) + "\n")
    command = [sys.executable, "-m", "airflow_provider_llmbatch.engine.fusion.fit", "--source", str(records)]
    command += ["--facts", str(place / "facts.jsonl"), "--model", str(model), "--schema", json.dumps(SCHEMA)]
    return subprocess.run(command, check=False).returncode == 0


@contextmanager
def _reader(place: Path) -> Iterator[str]:
    """Yield the base URL of a simulator that says of each note what it says."""
    rules: list[dict[str, Any]] = [
        {"match": {"contains": words}, "reply": {"content": json.dumps(FOUND)}} for words in WITH
    ]
    rules.append({"reply": {"content": json.dumps(NOTHING)}})
    (place / "scenario.yaml").write_text(json.dumps({"rules": rules}), encoding="utf-8")
    command = [sys.executable, "-m", "airflow_provider_llmbatch.simulator", "--port", "0", "--rpm", "6000"]
    command += ["--tpm", "1000000", "--scenario", str(place / "scenario.yaml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as simulator:
        try:
            line = simulator.stdout.readline() if simulator.stdout else ""
            yield line.rpartition(" ")[2].strip()
        finally:
            simulator.terminate()


def _manifest(demo: Demo, since: float) -> dict[str, Any] | None:
    found = [
        path for path in demo.results.glob("*/fuse/run=*/manifest.json") if path.stat().st_mtime >= since
    ]
    if not found:
        return None
    manifest: dict[str, Any] = json.loads(found[0].read_text("utf-8"))
    return manifest


def _show(demo: Demo, manifest: Mapping[str, Any]) -> None:
    """Print what came out: patterns of presence, what is wrong, the first rows."""
    folder = Path(manifest["result_path"])
    names = " ".join(manifest["modalities"])
    print(f"\n  records by what they have ({names}): {manifest['patterns']}")
    for line in (folder / "quarantine.jsonl").read_text("utf-8").splitlines():
        bad = json.loads(line)
        print(f"  {bad['id']}: {bad['code']} {bad['detail']}")
    for row in _rows(folder)[:3]:
        print(f"  {row['id']}: {row['scores'][0]:.2f} of {', '.join(row['present'])}")
    demo.say(f"plan: {manifest['plan']['reason']}; identities found and let through: {manifest['warnings']}")
    demo.say(f"rows and embeddings: {folder}")


def _rows(folder: Path) -> list[dict[str, Any]]:
    parts = sorted(folder.glob("part-*.jsonl"))
    return [json.loads(line) for part in parts for line in part.read_text("utf-8").splitlines()]


def _auroc(demo: Demo, manifest: Mapping[str, Any]) -> float:
    """Return the chance that a record of label 1 scores above one of label 0, among those with a label."""
    records = max(demo.results.glob("*/prepare/cohort/records.jsonl"), key=lambda path: path.stat().st_mtime)
    rows = [json.loads(line) for line in records.read_text("utf-8").splitlines()]
    labels = {row["id"]: row["label"] for row in rows if "label" in row}
    scores = {row["id"]: row["scores"][0] for row in _rows(Path(manifest["result_path"])) if "scores" in row}
    high, low = (_of(scores, labels, label) for label in (1, 0))
    wins = sum((one > other) + 0.5 * (one == other) for one in high for other in low)
    return wins / max(1, len(high) * len(low))


def _of(scores: Mapping[str, float], labels: Mapping[str, int], label: int) -> Sequence[float]:
    return [score for name, score in scores.items() if labels.get(name) == label]


if __name__ == "__main__":
    sys.exit(main())
