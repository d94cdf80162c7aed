"""
Take the pictures of docs/console.md: ``pytest tests/console/screenshots.py``.

The pages are the real ones, over queues and progress that were made for the picture.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from airflow_provider_llmbatch.engine.items import ItemError, Outcome, PromptRef, Usage
from airflow_provider_llmbatch.engine.observe.latency import LatencyHistogram
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.rollout.scores import Scores
from airflow_provider_llmbatch.engine.state.protocols import Gate, Seen
from airflow_provider_llmbatch.operators.places import Note, leave_note, task_folder
from airflow_provider_llmbatch.operators.routing import pin
from tests.console.conftest import REVIEW
from tests.contracts.states import requests, scope
from tests.engine.review.queues import failed
from tests.engine.rollout.whole import close_round, rollout
from tests.plugins.test_costs_api import NOW, connection, spend, take_of  # noqa: F401
from tests.plugins.test_health_api import park
from tests.plugins.test_progress_api import RUN, say
from tests.plugins.test_routing_api import in_state, offer

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


QUESTIONS = (
    ("how-far", "About 384,400 kilometres on average.", "How far is the moon?"),
    ("who-wrote", "It was written by Mary Shelley.", "Who wrote Frankenstein?"),
    ("capital", "The capital of Australia is Canberra.", "What is the capital of Australia?"),
    ("boils", "Water boils at 100 degrees Celsius at sea level.", "When does water boil?"),
    ("longest", "The Nile is usually named as the longest river.", "Which river is the longest?"),
    ("why-sky", "Air scatters blue light more than red light.", "Why is the sky blue?"),
)


def test_picture_of_a_rollout(visit, tmp_path, results_path):
    steps = rollout(results_path, "shorter", "answers")
    draw = random.Random(11)
    right = [right for _ in range(20) for _, right, _ in QUESTIONS]
    ids = [f"{name}-{number}" for number in range(20) for name, _, _ in QUESTIONS]
    asked = [question for _ in range(20) for _, _, question in QUESTIONS]
    items = zip(ids, asked, right, strict=True)
    source = tmp_path / "golden.jsonl"
    source.write_text(
        "".join(json.dumps({"id": id, "prompt": ask, "reference": text}) + "\n" for id, ask, text in items)
    )
    for number in range(3):
        said = {"base": [], "candidate": []}
        for text in right:
            for answers in said.values():
                half = " ".join(word for word in text.split() if draw.random() < 0.7)
                answers.append(text if draw.random() < 0.85 else half)
            if number == 2 and text.startswith("Air"):
                said["candidate"][-1] = "Because the sea is blue."
        usual = {"paired": False, "lower_is_better": True}
        live = Scores(
            metric="latency_ms",
            base={str(n): draw.gauss(900, 150) for n in range(300)},
            candidate={str(n): draw.gauss(620, 120) for n in range(60)},
            **usual,
        )
        metrics = ["token_f1", "bleu"]
        about = {"right": right, "ids": ids, "source": str(source)}
        close_round(results_path, steps, **said, **about, metrics=metrics, live=[live])
    page = visit("/llmbatch/dags/answers/rollouts/shorter", width=1000)
    page.set_viewport_size({"width": 1000, "height": 1200})
    page.locator(".chart canvas").nth(1).wait_for()
    page.screenshot(path=IMAGES / "console-rollout.png")
    pair = page.locator("section.box", has=page.locator("h3")).first
    pair.screenshot(path=IMAGES / "console-pair.png")


def test_picture_of_costs(visit, connection, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")
    draw = random.Random(5)
    models = ("small-1-2026-05-01", "large-1-2026-03-12")
    for dag, prompts, share in (
        ("billing_tickets", ("ticket@3", "ticket@4"), 1.0),
        ("catalogue", ("describe@7",), 0.45),
        ("night_summaries", ("summary@2",), 0.2),
    ):
        calls = [
            {
                **{"days": day, "prompt": prompts[-1] if day < 9 else prompts[0]},
                **{"served_model": models[draw.random() < 0.2], "usd": f"{draw.uniform(2, 6) * share:.4f}"},
                "usage": Usage(prompt=draw.randrange(90_000, 400_000), cached=40_000, completion=30_000),
            }
            for day in range(30)
            if (NOW.weekday() - day) % 7 < 5
        ]
        spend(dag, "scheduled__1", *calls)
    take_of(connection, tokens=1900, micro_usd=61_250_000)
    page = visit("/llmbatch/costs", "op", width=1000)
    page.locator("canvas").wait_for()
    page.get_by_role("progressbar", name="Use of budget spring").wait_for()
    page.screenshot(path=IMAGES / "console-costs.png", full_page=True)


def test_picture_of_routes(visit, tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")
    hosts = ("llm.example", "spare.example", "own.example")
    main, spare, backup = (f"endpoint/https://{host}/v1/small-1" for host in hosts)
    offer(main, spare, backup)
    park(Gate(name=main, probe_s=60.0), "503")
    park(Gate(name="credential/team-b/1f0c@llm.example", sticky=True), "401 invalid_api_key")
    took = {main: LatencyHistogram(), spare: LatencyHistogram()}
    for number in range(40):
        took[main].add(900 + 40 * number)
        took[spare].add(280 + 4 * number)
    counts = {gate: calls.counts() for gate, calls in took.items()}
    in_state(lambda state: state.add_latencies(counts, 60.0))
    through = scope(requests(10), gates=(Gate(name=spare),))
    in_state(lambda state: state.take(through, (), seen=[Seen(gate=spare, answered_at=NOW.timestamp())]))
    pin(spare, by="ann")
    page = visit("/llmbatch/routes", "op", width=1000, theme="dark")
    page.set_viewport_size({"width": 1000, "height": 560})
    page.get_by_text("pinned by ann").wait_for()
    page.screenshot(path=IMAGES / "console-routes.png")
