"""The fusion operator as a task calls it: rows and facts in, a manifest out, a kill in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_llmbatch.errors import ConfigurationError, StoppedError
from airflow_provider_llmbatch.operators.fusion import LLMBatchFusionOperator

SCHEMA = {"notes": {"kind": "note"}, "facts": {"kind": "facts"}}
ROWS = [{"id": f"i{n}", "notes": f"Nodule of {n} mm {{{{ params.word }}}}."} for n in range(6)]


def fuse(stage, **arguments: Any) -> LLMBatchFusionOperator:
    given = {"task_id": "f", "dag": stage.dag(), "source": ROWS, "schema": SCHEMA, "device": "cpu"}
    return LLMBatchFusionOperator(**{**given, **arguments})


@pytest.mark.slow
def test_notes_and_what_a_dispatch_made_of_them_become_embeddings(stage, capsys):
    schema = {"type": "object", "properties": {"mass": {"type": "boolean"}}, "required": ["mass"]}
    items = [{"id": row["id"], "vars": {"text": row["notes"]}} for row in ROWS[:4]]
    findings = stage.run(stage.dispatch(source=items, output_type=schema))
    manifest = stage.run(fuse(stage, facts=findings))
    assert manifest["counts"] == {"total": 6, "ok": 6, "quarantined": 0, "resumed": 0}
    assert manifest["patterns"] == {"11": 4, "10": 2}
    assert len(json.dumps(manifest)) < 8 * 1024
    folder = Path(manifest["result_path"])
    assert folder.parent == stage.results_path / "d" / "r" / "f"
    rows = [json.loads(line) for line in (folder / "part-00000.jsonl").read_text().splitlines()]
    assert [row["present"] for row in rows] == [["notes", "facts"]] * 4 + [["notes"]] * 2
    told = capsys.readouterr().out + json.dumps(manifest)
    assert "Nodule" not in told
    assert not [path for path in folder.iterdir() if b"Nodule" in path.read_bytes()]
    again = stage.run(fuse(stage, facts=findings), try_number=2)
    assert again["counts"]["resumed"] == 6


@pytest.mark.slow
def test_a_source_beside_the_dag_file_is_read_and_too_many_bad_records_fail_for_good(stage):
    stage.write("data/records.jsonl", '{"id": "a", "notes": "x"}\n{"id": "b", "notes": " "}\n')
    task = fuse(stage, source="data/records.jsonl", schema={"notes": {"kind": "note"}})
    with pytest.raises(AirflowFailException, match=r"1 of 2 records are quarantined.*note\.empty \(1\)"):
        stage.run(task)
    task = fuse(
        stage, source="data/records.jsonl", schema={"notes": {"kind": "note"}}, max_bad_fraction="0.5"
    )
    assert stage.run(task)["counts"]["ok"] == 1


@pytest.mark.slow
def test_on_kill_ends_task_and_worker_within_five_seconds_and_a_retry_goes_on(stage):
    rows = [{"id": str(n), "notes": "Nodule of the upper lobe. " * 150} for n in range(12)]
    task, raised = fuse(stage, source=rows, chunk_records=4), []

    def execute() -> None:
        try:
            stage.run(task)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=execute)
    thread.start()
    give_up = time.monotonic() + 60
    while not list(stage.results_path.glob("d/r/f/run=*/window-00000.json")):
        assert time.monotonic() < give_up
        time.sleep(0.02)
    began = time.monotonic()
    task.on_kill()
    thread.join(10)
    assert time.monotonic() - began < 5
    assert isinstance(raised[0], StoppedError)
    assert raised[0].retryable
    assert stage.run(fuse(stage, source=rows, chunk_records=4), try_number=2)["counts"]["resumed"] >= 4


@pytest.mark.slow
def test_a_model_is_trained_and_evaluated_task_by_task(stage, capsys):
    schema = {"notes": {"kind": "note"}}
    words = ("There is a spiculated mass.", "No focal lesion is seen.")
    rows = [
        {"id": f"i{n}", "notes": f"{words[n % 2]} Case {n}.", "label": "ill well".split()[n % 2]}
        for n in range(12)
    ]
    trained = stage.run(fuse(stage, source=rows, schema=schema, mode="train", training={"head_epochs": 15}))
    found = stage.run(fuse(stage, source=rows, schema=schema, mode="evaluate", model=trained["model"]))
    assert found["metrics"]["records"] == 12
    assert found["metrics"]["auroc"] > 0.9
    assert found["metrics"]["subsets"].keys() == {"notes"}
    folder = Path(found["result_path"])
    assert found["report"] == str(folder / "evaluation.html")
    html, markdown = ((folder / f"evaluation.{ending}").read_text() for ending in ("html", "md"))
    assert "<svg" in html
    assert "<script" not in html
    assert "| notes | 12 |" in markdown
    assert len(json.dumps(found)) < 8 * 1024
    told = capsys.readouterr().out + html + markdown + json.dumps([trained, found])
    assert "spiculated" not in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"training": {"epochs": -1}}, "epochs is -1"),
        ({"training": {"speed": 1}}, "give a mapping of"),
        ({"policies": {"mri": {}}}, "policies names mri"),
        ({"policies": {"notes": {"prune": 0.5}}}, "'notes': prune is 0.5"),
    ],
)
def test_a_training_that_cannot_be_followed_stops_the_dag_from_being_parsed(stage, arguments, words):
    with pytest.raises(ConfigurationError, match=words):
        fuse(stage, mode="train", **arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"source": ""}, "source is empty"),
        ({"source": "s3://bucket/records.jsonl"}, "a URL"),
        ({"result_path": "relative"}, "a relative path"),
        ({"result_path": "s3://conn@bucket/out"}, "names a connection"),
        ({"max_bad_fraction": "many"}, "max_bad_fraction is 'many'"),
        ({"facts": "nothing"}, "give what dispatch tasks return"),
        ({"mode": "predict"}, "model is not set"),
        ({"schema": "ct+mri"}, "schema is 'ct\\+mri'"),
        ({"require": ["ct"]}, "require names ct"),
    ],
)
def test_an_argument_that_cannot_be_used_fails_the_task_for_good(stage, arguments, words):
    with pytest.raises(AirflowFailException, match=words):
        stage.run(fuse(stage, **arguments))


def test_the_queue_is_that_of_gpus_unless_the_dag_names_one(airflow_home):
    ask = (
        "from airflow_provider_llmbatch.operators.fusion import LLMBatchFusionOperator as Fusion\n"
        "print(Fusion(task_id='a', source='x').queue, Fusion(task_id='b', source='x', queue='mine').queue)"
    )
    settings = {"AIRFLOW_HOME": str(airflow_home), "AIRFLOW__LLMBATCH__GPU_QUEUE": "gpus"}
    done = subprocess.run(
        [sys.executable, "-c", ask],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["gpus", "mine"]


@pytest.mark.slow
def test_an_adviser_is_asked_once_and_whatever_it_does_the_run_goes_on(stage, service, connect, capsys):
    connect(service.url, model="m-1")
    rows = [{"id": f"i{n}", "facts": {"size_mm": n}} for n in range(4)]
    given = {"source": rows, "schema": {"facts": {"kind": "facts"}}, "plan_adviser": "llmbatch_default"}
    service.play({"reply": {"content": '{"plan": 1}'}})
    manifest = stage.run(fuse(stage, **given))
    advised = manifest["plan"]["adviser"]
    assert (advised["index"], advised["problem"]) == (1, None)
    again = stage.run(fuse(stage, **given), try_number=2)
    assert (again["run_fingerprint"], again["counts"]["resumed"]) == (manifest["run_fingerprint"], 4)
    assert len(service.arrivals()) == 1
    unheard = stage.run(fuse(stage, **{**given, "plan_adviser": "nowhere"}))
    assert unheard["plan"]["adviser"]["index"] == 0
    assert (
        "The plan adviser is not followed: asking failed (AirflowNotFoundException)"
        in capsys.readouterr().out
    )
