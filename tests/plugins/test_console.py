from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine import manifests
from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.operators.places import Note, leave_note, task_folder

REPORT = "/llmbatch/dags/billing/runs/manual__2026-11-29T12:00:00+00:00/tasks/dispatch/report"


@pytest.fixture
def results(airflow_home) -> Path:
    """Return where results lie by default."""
    return airflow_home / "llmbatch" / "results"


@pytest.fixture
def report_file(results) -> Path:
    """Leave a report behind as a task does."""
    path = results / "billing" / "manual__2026-11-29T12%3A00%3A00%2B00%3A00" / "dispatch" / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("<!doctype html><title>Report</title><p>Übersicht</p>", encoding="utf-8")
    return path


def test_every_process_of_airflow_loads_next_to_nothing_for_the_plugin():
    """An API server, and each task, has loaded these of Airflow anyway."""
    program = """if True:
        import airflow.plugins_manager, airflow.sdk.execution_time.task_runner, json, sys, time
        before, began = set(sys.modules), time.process_time()
        from airflow_provider_llmbatch.plugins.llmbatch import LLMBatchPlugin
        ms = (time.process_time() - began) * 1000
        print(json.dumps([sorted(set(sys.modules) - before), ms]))
    """
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules, ms = json.loads(run.stdout.splitlines()[-1])
    ours = "airflow_provider_llmbatch"
    assert (
        {f"{ours}.plugins.llmbatch"}
        <= set(modules)
        <= {*(ours, f"{ours}.plugins", f"{ours}.plugins.llmbatch")}
    )
    assert ms <= 50


def test_nobody_gets_in_without_a_login(api, report_file):
    assert api(REPORT).status_code == 401


@pytest.mark.parametrize("role", ["viewer", "user", "op", "admin"])
def test_who_may_see_the_task_sees_its_report(api, report_file, role):
    answer = api(REPORT.replace("+", "%2B"), role)
    assert answer.status_code == 200
    assert answer.text == report_file.read_text(encoding="utf-8")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


def test_a_page_runs_no_script_and_loads_nothing(api, report_file):
    headers = api(REPORT, "viewer").headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")
    assert "script-src" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_a_mapped_task_has_a_report_for_each_index(api, report_file):
    mapped = report_file.parent / "2" / "report.html"
    mapped.parent.mkdir(exist_ok=True)
    mapped.write_text("the third")
    assert api(f"{REPORT}?map_index=2", "viewer").text == "the third"
    assert api(f"{REPORT}?map_index=-1", "viewer").text == report_file.read_text(encoding="utf-8")


def test_a_report_nobody_wrote_is_a_clear_404(api, report_file):
    answer = api(REPORT.replace("billing", "<b>other"), "viewer")
    assert answer.status_code == 404
    assert "No report yet" in answer.text
    assert "&lt;b&gt;other" in answer.text
    assert "<b>other" not in answer.text
    assert "content-security-policy" in answer.headers


@pytest.mark.parametrize("climbing", ["..", "%2e%2e", "..%2f..", "%2e%2e%2f%2e%2e", "..%5c..", "%00", "/etc"])
@pytest.mark.parametrize("place", ["dags", "runs", "tasks"])
def test_no_name_leads_out_of_the_results(api, results, report_file, climbing, place):
    (results.parent / "report.html").write_text("secret")
    (results.parent.parent / "report.html").write_text("secret")
    names = {"dags": "billing", "runs": "r", "tasks": "t"} | {place: climbing}
    path = "/llmbatch" + "".join(f"/{what}/{name}" for what, name in names.items()) + "/report"
    answer = api(path, "viewer")
    assert answer.status_code in (404, 422)
    assert answer.text != "secret"


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/", "/dags"])
def test_nothing_else_answers_under_the_prefix(api, path):
    assert api(f"/llmbatch{path}", "admin").status_code == 404


def test_the_page_of_a_running_task_is_asked_for_again_until_it_has_ended(api, results):
    folder = open_folder(task_folder(str(results), "billing", "running", "dispatch"))
    leave_note(folder, Note(result_path=folder.uri))
    path = "/llmbatch/dags/billing/runs/running/tasks/dispatch/report"
    assert api(path).status_code == 401
    begun = api(path, "viewer")
    assert begun.status_code == 404
    assert "has begun, and has stored nothing so far" in begun.text
    assert int(begun.headers["refresh"]) >= 10
    manifests.store(
        folder, Manifest(result_path=folder.uri, state="complete", items=2, counts={Outcome.OK: 2})
    )
    (Path(folder.uri) / "chunk-00000.json").write_text("{}")
    ended = api(path, "viewer")
    assert ended.status_code == 200
    assert "2 of 2" in ended.text
    assert "refresh" not in ended.headers
    assert "content-security-policy" in ended.headers
