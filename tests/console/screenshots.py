"""
Take the pictures of docs/console.md: ``pytest tests/console/screenshots.py``.

The pages are the real ones, over queues and progress that were made for the picture.
"""

from __future__ import annotations

import json
from pathlib import Path

from airflow_provider_llmbatch.engine.items import ItemError, Outcome, PromptRef, Usage
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.operators.places import Note, leave_note, task_folder
from tests.console.conftest import REVIEW
from tests.engine.review.queues import failed
from tests.plugins.test_progress_api import RUN, say

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SCHEMA = {
    "type": "object",
    "title": "Ticket",
    "required": ["topic", "urgent", "summary"],
    "properties": {
        "topic": {"enum": ["billing", "login", "delivery"], "description": "What it is about."},
        "urgent": {"type": "boolean"},
        "summary": {"type": "string", "description": "One sentence, in English."},
    },
    "additionalProperties": False,
}


def _rows():
    for number in range(120):
        model = ("small-1", "small-2")[number % 3 == 0]
        usage = Usage(prompt=280 + number, completion=24)
        prompt = PromptRef(name="ticket", version="3", sha="ab" * 32)
        usual = {"id": f"t-{1000 + number}", "served_model": model, "usage": usage, "prompt": prompt}
        if number % 6 == 5:
            error = ItemError(kind="refusal", message="I cannot help with this request.")
            yield failed(number, Outcome.REFUSED, error=error, raw_output=None, **usual)
            continue
        said = {"topic": "billing", "urgent": "no", "summary": "The customer was charged twice."}
        yield failed(number, raw_output=json.dumps(said), **usual)


def test_pictures_of_the_review(visit, open_queue):
    open_queue(list(_rows()), schema=SCHEMA, models=("large-1",), prompts=("ticket@3", "ticket@4"))
    page = visit(REVIEW, width=1000)
    page.set_viewport_size({"width": 1000, "height": 560})
    page.get_by_label("Select t-1001").check()
    page.get_by_label("Select t-1003").check()
    page.screenshot(path=IMAGES / "console-queue.png")
    page.get_by_role("link", name="t-1001").click()
    page.set_viewport_size({"width": 1000, "height": 820})
    page.get_by_label("summary").fill("The customer was charged twice in May.")
    page.get_by_label("urgent").select_option("false")
    page.get_by_text("Valid: this can be saved.").wait_for()
    page.screenshot(path=IMAGES / "console-ticket.png")


def test_picture_of_a_run(visit, results_path, tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")
    folder = open_folder(task_folder(results_path, *RUN, "dispatch"))
    leave_note(folder, Note(result_path=folder.uri, budget_usd="2"))
    full = {"team/small-*/tokens_per_minute": 0.97, "team/small-*/requests_per_minute": 0.42}
    tokens = {"in": 1_721_300, "cached": 240_640, "out": 144_210, "reasoning": 0}
    counts = {"ok": 5890, "invalid_output": 96, "refused": 14}
    figures = {"rate": 9.4, "counts": counts, "use": full, "tokens": tokens, "usd": "0.3446"}
    say("dispatch", -1, 6010, 10_000, waits_for="team/small-*/tokens_per_minute", **figures)
    page = visit(f"/llmbatch/dags/{RUN[0]}/runs/{RUN[1]}/progress", width=1000, theme="dark")
    page.set_viewport_size({"width": 1000, "height": 500})
    page.get_by_text("6,010 of 10,000 items").wait_for()
    page.screenshot(path=IMAGES / "console-run.png")
