"""What all pages have in common: texts stay texts, everybody can use them, nothing comes from outside."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import ItemError, Outcome
from airflow_provider_llmbatch.engine.state.protocols import Gate
from airflow_provider_llmbatch.operators.routing import pin
from airflow_provider_llmbatch.operators.stopping import stop_run
from tests.console.conftest import REVIEW
from tests.console.hostile import PAYLOADS
from tests.engine.review.queues import failed
from tests.plugins.test_costs_api import connection, spend  # noqa: F401
from tests.plugins.test_health_api import ENDPOINT, park
from tests.plugins.test_progress_api import RUN, say
from tests.plugins.test_routing_api import OTHER, offer

#: What the check of an output came to.
VERDICT = "p.good[role=status], p.bad[role=status]"
NEVER_MADE = {"SCRIPT", "IMG", "SVG", "IFRAME", "OBJECT", "EMBED", "STYLE", "VIDEO", "LINK"}
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")


def test_no_hostile_text_comes_to_life(visit, open_queue):
    """It stands in ids, names, messages, outputs, errors and schemas, and is looked at in every view."""
    assert len(PAYLOADS) >= 50
    rows = [
        failed(
            number,
            id=f"{number} {text}",
            served_model=text,
            raw_output=f'{{"word": 3, {json.dumps(text)}: {json.dumps(text)}}}',
            error=ItemError(kind="schema", code=text[:40], message=text),
        )
        for number, text in enumerate(PAYLOADS)
    ]
    schema = {
        "type": "object",
        "properties": {text: {"type": "string", "title": text, "description": text} for text in PAYLOADS},
    }
    open_queue(rows, schema=schema, models=PAYLOADS)
    page = visit("/llmbatch/review")
    page.add_init_script("window.fired = () => { window.isAlive = true }; window.alert = window.fired")
    page.goto(page.url.partition("/llmbatch")[0] + REVIEW)
    page.locator("tbody tr").first.wait_for()
    assert page.locator("tbody tr").count() == 50
    for number in range(len(PAYLOADS)):
        page.evaluate(f"location.hash = '0-{number}'")
        page.get_by_role("heading", name=f"Ticket {number} ", exact=False).wait_for()
        page.locator(VERDICT).wait_for()
        assert not page.evaluate("window.isAlive"), PAYLOADS[number]
    made = page.evaluate("[...document.querySelectorAll('main *')].map((each) => each.tagName)")
    assert not set(made) & NEVER_MADE
    assert not page.errors


@pytest.mark.parametrize("text", PAYLOADS[::12])
def test_no_hostile_name_of_a_task_or_a_gate_comes_to_life(visit, run, text):
    say("dispatch", -1, 1, 2, waits_for=text, use={text: 0.5}, counts={text: 1})
    stop_run(*RUN, by=text[:100], why=text[:200])
    park(Gate(name=f"endpoint/{text}"), text)
    offer(f"endpoint/{text}")
    pin(f"endpoint/{text}", by=text)
    spend("billing", "r1", {"served_model": text, "prompt": text})
    page = visit("/llmbatch/routes", "admin")
    page.add_init_script("window.fired = () => { window.isAlive = true }; window.alert = window.fired")
    for path, ready in (
        (f"/llmbatch/dags/{RUN[0]}/runs/{RUN[1]}/progress", "dl"),
        ("/llmbatch/routes", "td"),
        ("/llmbatch/costs", "canvas"),
    ):
        page.goto(page.url.partition("/llmbatch")[0] + path)
        page.locator(ready).first.wait_for()
        assert not page.evaluate("window.isAlive")
        made = page.evaluate("[...document.querySelectorAll('main *')].map((each) => each.tagName)")
        assert not set(made) & NEVER_MADE
    assert not page.errors


def test_a_text_of_a_megabyte_and_what_is_unseen_are_shown(visit, open_queue):
    texts = "a\u202eb\u200bc" + "long " * 200_000
    error = ItemError(kind="refusal", message=texts)
    open_queue([failed(0, Outcome.REFUSED, error=error, raw_output=texts)])
    page = visit(REVIEW + "#0-0")
    page.get_by_role("button", name="Show all").first.click()
    assert page.locator(".mark").first.inner_text() == "U+202E"
    assert (
        page.get_by_role("group", name="What the model said", exact=True).inner_text().count("long")
        == 200_000
    )


def test_everybody_can_use_the_pages(visit, open_queue, run, connection):  # noqa: F811
    open_queue([failed(n) for n in range(60)])
    park(ENDPOINT, "503")
    offer(OTHER)
    pin(OTHER, by="ann")
    spend("billing", "r1", {"usd": None}, {"served_model": "m-2"})
    for path, ready in (
        ("/llmbatch/costs", "canvas"),
        (f"/llmbatch/dags/{RUN[0]}/runs/{RUN[1]}/progress", "section"),
        ("/llmbatch/routes", "tbody tr"),
        ("/llmbatch/review", "tbody tr"),
        (REVIEW, "tbody tr"),
        (REVIEW + "#0-1", VERDICT),
    ):
        page = visit(path, "admin")
        page.locator(ready).first.wait_for()
        # It comes in past the policy of the page, as a debugger does.
        page.evaluate(AXE)
        for width, theme in itertools.product((1280, 400), ("light", "dark")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme)
            assert _faults(page) == [], (path, width, theme)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)
        assert not page.errors
        here = page.url.partition("/llmbatch")[0]
        assert all(url.startswith(f"{here}/llmbatch/") for url in page.asked)


def _faults(page: Any) -> list[str]:
    """Return what axe-core finds wrong."""
    found = page.evaluate("axe.run().then((found) => found.violations)")
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


def test_airflow_shows_the_page_where_people_look_for_it(visit, open_queue):
    open_queue()
    page = visit("/plugin/llmbatch-review")
    inside = page.frame_locator("iframe")
    inside.get_by_role("link", name="billing · review").click()
    inside.get_by_role("link", name="item-00000").click()
    inside.get_by_role("button", name="Skip …").click()
    inside.locator("dialog").get_by_role("button", name="Skip").click()
    inside.get_by_role("heading", name="Ticket item-00001").wait_for()
