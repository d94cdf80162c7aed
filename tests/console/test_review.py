"""The review page in a real browser."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from airflow_provider_llmbatch.engine.items import Outcome
from tests.console.conftest import BELOW, REVIEW
from tests.engine.review.queues import failed


def lines(page: Any) -> list[str]:
    """Return the item ids of the table."""
    page.wait_for_selector("tbody tr, section p")
    return page.locator("tbody tr td:nth-child(2)").all_inner_texts()


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def decided(queue: Any) -> dict[str, str]:
    queue.refresh()
    return {ticket: decision.wish.kind for ticket, decision in queue.round().decisions.items()}


def test_a_reviewer_edits_one_retries_two_and_skips_the_rest(visit, open_queue):
    queue = open_queue([failed(n) for n in range(120)])
    page = visit("/llmbatch/review")
    page.get_by_role("link", name="billing · review").click()
    assert lines(page)[0] == "item-00000"
    page.get_by_role("link", name="item-00000", exact=True).click()
    page.get_by_label("word (JSON)").fill('"mended"')
    page.get_by_text("Valid: this can be saved.").wait_for()
    assert page.locator(".diff .added").inner_text() == '+   "word": "mended"'
    assert page.locator(".diff .removed").inner_text() == '-   "word": 3'
    page.get_by_role("button", name="Save edit").click()
    page.get_by_role("heading", name="Ticket item-00001").wait_for()
    page.get_by_role("button", name="Back to the list").click()
    for number in (1, 2):
        page.get_by_label(f"Select item-0000{number}", exact=True).check()
    page.get_by_role("button", name="Retry …").click()
    page.get_by_label("Model").last.select_option("m-2")
    page.locator("dialog").get_by_role("button", name="Retry").click()
    page.get_by_text("3 of 120 needed").wait_for()
    page.get_by_role("button", name="Select all 117 that match").click()
    page.get_by_role("button", name="Skip …").click()
    page.locator("dialog").get_by_role("button", name="Skip").click()
    page.get_by_text("No ticket matches").wait_for()
    kinds = decided(queue)
    assert (len(kinds), kinds["0-0"], kinds["0-1"], kinds["0-2"], kinds["0-119"]) == (
        *(120, "edit", "retry", "retry"),
        "skip",
    )
    assert queue.round().decisions["0-0"].wish.output == {"word": "mended"}
    assert queue.round().decisions["0-1"].wish.model == "m-2"
    assert not page.errors


def test_the_keyboard_alone_is_enough(visit, open_queue):
    queue = open_queue([failed(n) for n in range(5)])
    page = visit(REVIEW)
    assert len(lines(page)) == 5
    press(page, "j", "x", "j", "x", "s")
    page.locator("dialog[open]").wait_for()
    press(page, "Tab", "Enter")
    page.locator("tbody a:focus", has_text="item-00002").wait_for()
    press(page, "Enter")
    page.get_by_role("heading", name="Ticket item-00002").wait_for()
    page.get_by_text("The reply does not satisfy the schema").first.wait_for()
    press(page, "n")
    page.get_by_role("heading", name="Ticket item-00003").wait_for()
    press(page, "p")
    page.get_by_role("heading", name="Ticket item-00002").wait_for()
    press(page, "r")
    page.locator("dialog[open]").wait_for()
    press(page, "Escape")
    page.locator("dialog").wait_for(state="detached")
    press(page, "Escape")
    page.locator("tbody tr").first.wait_for()
    assert decided(queue) == {"0-0": "skip", "0-1": "skip"}
    assert not page.errors


def test_filters_search_and_pages_find_tickets(visit, open_queue):
    open_queue([failed(n, Outcome.REFUSED if n % 2 else Outcome.INVALID_OUTPUT) for n in range(130)])
    page = visit(REVIEW)
    assert len(lines(page)) == 50
    page.get_by_role("button", name="Next page").click()
    page.get_by_text("51 to 100 of 130").wait_for()
    page.get_by_label("Outcome").select_option("refused")
    page.get_by_text("1 to 50 of 65").wait_for()
    page.get_by_label("Item id has").fill("item-0012")
    page.get_by_text("1 to 5 of 5").wait_for()
    assert lines(page) == [f"item-0012{n}" for n in (1, 3, 5, 7, 9)]
    with page.expect_download() as download:
        page.get_by_role("link", name="Download as CSV").click()
    assert len(download.value.path().read_text().splitlines()) == 6


def test_what_is_written_is_checked_as_it_is_written(visit, open_queue):
    open_queue()
    page = visit(REVIEW + "#0-0")
    save = page.get_by_role("button", name="Save edit")
    page.get_by_text("does not satisfy", exact=False).first.wait_for()
    assert save.is_disabled()
    page.get_by_role("button", name="JSON", exact=True).click()
    area = page.get_by_label("Output as JSON")
    area.fill('{"word": ')
    page.get_by_text("This is no JSON").wait_for()
    assert save.is_disabled()
    area.fill('{"word": "so", "more": 1}')
    page.get_by_text("more", exact=False).first.wait_for()
    area.fill('{"word": "so"}')
    page.get_by_text("Valid: this can be saved.").wait_for()
    assert save.is_enabled()
    page.get_by_role("button", name="Form").click()
    assert page.get_by_label("word", exact=True).input_value() == "so"


@pytest.mark.parametrize("text", ["12345678901234567890", "1.0000000000000000001", "1e400"])
def test_a_number_that_a_browser_cannot_hold_is_not_changed(visit, open_queue, text):
    """What was not touched in a form must come out as it went in."""
    schema = {"type": "object", "properties": {"n": {"type": "number"}, "word": {"type": "string"}}}
    open_queue([failed(0, raw_output=f'{{"n": {text}, "word": "a"}}')], schema=schema)
    page = visit(REVIEW + "#0-0")
    page.get_by_label("word", exact=True).fill("b")
    page.get_by_role("button", name="JSON", exact=True).click()
    assert f'"n": {text}' in page.get_by_label("Output as JSON").input_value()


def test_a_form_is_made_of_the_schema(visit, open_queue):
    schema = {
        "type": "object",
        "required": ["topic", "urgent", "lines", "note"],
        "properties": {
            "topic": {"enum": ["bill", "login"], "description": "What it is about."},
            "urgent": {"type": "boolean"},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "score": {"type": "number"},
            "__proto__": {"type": "string"},
        },
        "$defs": {"line": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}},
    }
    queue = open_queue([failed(0, raw_output="no JSON at all")], schema=schema)
    page = visit(REVIEW + "#0-0")
    page.get_by_label("topic").select_option("login")
    page.get_by_label("urgent").check()
    page.get_by_role("button", name="Add to lines").click()
    page.get_by_label("n", exact=True).fill("7")
    page.get_by_label("note is null").uncheck()
    page.get_by_label("note", exact=True).fill("so")
    page.get_by_role("button", name="Add score").click()
    page.get_by_label("score", exact=True).fill("0.5")
    page.get_by_text("Valid: this can be saved.").wait_for()
    page.get_by_role("button", name="Save edit").click()
    page.get_by_text("1 of 1 needed").wait_for()
    assert decided(queue) == {"0-0": "edit"}
    assert queue.round().decisions["0-0"].wish.output == {
        **{"topic": "login", "urgent": True, "lines": [{"n": 7}], "note": "so", "score": 0.5}
    }


def test_a_truth_value_of_the_wrong_type_is_chosen_anew(visit, open_queue):
    schema = {"type": "object", "properties": {"urgent": {"type": "boolean"}, "known": {"type": "boolean"}}}
    queue = open_queue([failed(0, raw_output='{"urgent": "no", "known": null}')], schema=schema)
    page = visit(REVIEW + "#0-0")
    control = page.get_by_label("urgent", exact=True)
    control.wait_for()
    assert control.locator("option").all_inner_texts() == ['not allowed: "no"', "true", "false"]
    control.select_option("false")
    page.get_by_label("known", exact=True).select_option("true")
    page.get_by_text("Valid: this can be saved.").wait_for()
    page.get_by_role("button", name="Save edit").click()
    page.get_by_text("1 of 1 needed").wait_for()
    assert decided(queue) == {"0-0": "edit"}
    assert queue.round().decisions["0-0"].wish.output == {"urgent": False, "known": True}


def test_who_is_second_is_told_of_the_first(visit, open_queue):
    open_queue()
    first, second = visit(REVIEW + "#0-0"), visit(REVIEW + "#0-0", name="ben")
    second.get_by_role("button", name="Skip …").wait_for()
    for page in (first, second):
        page.get_by_role("button", name="Skip …").click()
        page.locator("dialog").get_by_role("button", name="Skip").click()
        page.get_by_role("heading", name="Ticket item-00001").wait_for()
    assert "ann decided before you" in second.locator(".notice").inner_text()


def test_a_reader_is_offered_no_decision(visit, open_queue):
    open_queue()
    page = visit(REVIEW, "viewer")
    assert len(lines(page)) == 4
    page.get_by_text("You may read this queue, and not decide.").wait_for()
    assert page.get_by_role("button", name="Skip …").count() == 0
    page.get_by_role("link", name="item-00000").click()
    page.get_by_text("text of 0").wait_for()
    assert page.get_by_role("button", name="Save edit").count() == 0


def test_below_a_path_all_addresses_are_below_it(visit, open_queue, monkeypatch, site):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", site + BELOW)
    open_queue()
    page = visit(f"{BELOW}/llmbatch/review")
    page.get_by_role("link", name="billing · review").click()
    page.get_by_role("link", name="item-00000").click()
    page.get_by_text("text of 0").wait_for()
    assert not page.errors
    assert all(url.startswith(f"{site}{BELOW}/llmbatch/") for url in page.asked)


def test_a_person_who_is_not_signed_in_is_sent_to_sign_in_and_back(visit, open_queue):
    page = visit(f"{REVIEW}?map_index=-1", None)
    page.wait_for_url("**/auth/login*")
    (back,) = parse_qs(urlsplit(page.url).query)["next"]
    assert unquote(back) == unquote(f"{REVIEW}?map_index=-1")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/llmbatch/review", "No queue waits for you"),
        (REVIEW, "This task has opened no review queue"),
    ],
)
def test_a_page_without_anything_to_show_says_so(visit, path, words):
    page = visit(path)
    page.get_by_text(words).wait_for()


def test_a_server_that_is_away_is_told_of_and_nothing_is_lost(visit, open_queue):
    open_queue()
    page = visit(REVIEW + "#0-0")
    page.get_by_role("button", name="JSON", exact=True).click()
    page.route("**/api/v1/**", lambda route: route.abort())
    page.get_by_label("Output as JSON").fill('{"word": "kept"}')
    page.get_by_text("The server cannot be reached").wait_for()
    page.unroute("**/api/v1/**")
    page.get_by_label("Output as JSON").fill('{"word": "kept."}')
    page.get_by_text("Valid: this can be saved.").wait_for()


def test_an_outage_is_told_once_and_until_it_is_over(visit, open_queue):
    open_queue()
    page = visit("about:blank")
    page.clock.install()
    page.goto(page.context.site + REVIEW)
    page.locator("tbody tr").first.wait_for()
    page.route("**/api/v1/**", lambda route: route.abort())
    for _ in range(3):
        page.clock.run_for(16_000)
        page.get_by_role("alert").wait_for()
    assert page.get_by_role("alert").count() == 1
    page.unroute("**/api/v1/**")
    page.clock.run_for(16_000)
    page.get_by_role("alert").wait_for(state="detached")
