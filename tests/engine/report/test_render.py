from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.items import Cost, ItemError, Outcome, PromptRef, Usage
from airflow_provider_llmbatch.engine.observe.latency import LatencyMap
from airflow_provider_llmbatch.engine.report.account import HeatMap, Report
from airflow_provider_llmbatch.engine.report.html import to_html
from airflow_provider_llmbatch.engine.report.markdown import to_markdown
from airflow_provider_llmbatch.engine.report.merge import merge
from airflow_provider_llmbatch.engine.report.sections import MEANINGS
from tests.engine.report.manifests import PROMPT, STARTED, failed, manifest, plan, second

HOSTILE = [
    "<script>alert(1)</script>",
    "</td></table><img src=x onerror=alert(1)>",
    "\"><a href='javascript:alert(1)'>x</a>",
    "| a | b |\n|---|---|\n# title",
    "![x](https://evil.example/p.png) [y](javascript:z) `code` *b* ~~s~~",
    "invoice\u202efdp.exe \x1b[31m \x00",
    "{{ 7 * 7 }} {% raw %}",
    "@everyone https://evil.example www.evil.example",
    "&lt;b&gt; &amp;",
]
VOID = {"meta", "img", "br", "hr", "input", "link"}
TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "h1",
        "h2",
        "p",
        "b",
        "span",
        "dl",
        "div",
        "dt",
        "dd",
    ),
    *("section", "table", "caption", "thead", "tbody", "tr", "th", "td", "ul", "li"),
}


class Page(HTMLParser):
    """Read a page, and note what is in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def heat() -> HeatMap:
    latencies = LatencyMap()
    for second_of_run in range(100):
        latencies.add(STARTED + second_of_run, 700.0 if second_of_run < 50 else 9000.0)
    return HeatMap.from_json(latencies.to_json())


def full() -> Report:
    rows = [
        failed(3, raw_output="I would rather not."),
        failed(4, Outcome.INVALID_OUTPUT, raw_output='{"label": 1}'),
    ]
    parts = [manifest(possible_double_paid=2), second(state="stopped", reason="The budget run-usd is spent.")]
    return merge(parts, plan=plan(), results=rows, heat=heat(), title="Labels of May")


def hostile(text: str) -> Report:
    prompt = PromptRef(name=text, version=text, sha=text)
    part = manifest(result_path=text, reason=text, model=text, schema_digest=text, prompt=prompt)
    row = failed(1, id=text, error=ItemError(kind="x", message=text), raw_output=text)
    planned = plan(chunks=1, prompt=prompt)
    planned = replace(planned, estimate=replace(planned.estimate, binds=text))
    return merge([part], plan=planned, results=[row], title=text)


def test_the_page_holds_what_a_reader_looks_for() -> None:
    text = " ".join(Page(to_html(full())).texts)
    for expected in (
        *("Labels of May", "stopped", "The budget run-usd is spent.", "90.0%", "180 of 200"),
        *("$1.0000", "planned $1.2500, −20%", "$1.0000 – $2.0000", "item-3", "The model declined 3."),
        *("18,000", "20,000", "+11.1%", "1.20 – 1.50 s", "9.00 s", "97.0%", "208", "1 min 00 s"),
        *(
            f"{PROMPT.name}@{PROMPT.version}",
            PROMPT.sha,
            "cd" * 32,
            "s3://lake/run-1",
            "When calls were slow",
        ),
        *("2026-05-05 16:53:20 UTC", "1 min 30 s", "What this report does not know", "2 calls may have been"),
    ):
        assert expected in text, expected


def test_markdown_holds_the_same_tables() -> None:
    text = to_markdown(full())
    assert text.startswith("# Labels of May\n\n**Stopped.** The budget run-usd is spent.\n")
    assert "- Spent: **$1.0000** (planned $1.2500, −20%)" in text
    assert "| refused | the model declined | 12 | 6.0% |" in text
    assert "| In, all | 18,000 | 20,000 | +11.1% |" in text
    assert "| All |  | 200 | 100% |" in text
    assert "## What this report does not know" in text


def test_the_page_is_whole_closed_and_fetches_nothing() -> None:
    text = to_html(full())
    page = Page(text)
    assert page.open == []
    assert page.tags <= TAGS
    assert not page.attributes & {"src", "href", "srcset", "action"}
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert len(text) < 60_000


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_inert_in_html(text: str) -> None:
    page = Page(to_html(hostile(text)))
    assert page.open == []
    assert page.tags <= TAGS
    assert not any(name.startswith("on") for name in page.attributes)
    shown = " ".join(page.texts)
    assert "\u202e" not in shown
    assert "\x1b" not in shown


def test_a_text_that_looks_like_a_template_is_shown_as_it_is() -> None:
    assert "{{ 7 * 7 }}" in Page(to_html(hostile("{{ 7 * 7 }}"))).texts


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_inert_in_markdown(text: str) -> None:
    shown = to_markdown(hostile(text))
    assert "<" not in shown
    assert not re.search(r"(?<!\\)[`\[\]]", shown)
    assert "://" not in shown
    assert "@everyone" not in shown
    assert "\u202e" not in shown
    for line in shown.splitlines():
        if line.startswith("|"):
            head = len(re.findall(r"(?<!\\)\|", line))
            assert head in (3, 5, 8)
    assert len(re.findall(r"^# ", shown, re.MULTILINE)) == 1


@settings(deadline=None)
@given(st.text(max_size=300))
def test_no_text_breaks_a_page_or_a_table(text: str) -> None:
    report = hostile(text)
    page = Page(to_html(report))
    assert page.open == []
    assert page.tags <= TAGS
    to_markdown(report).encode()


def test_an_output_is_never_shown_beyond_its_beginning() -> None:
    report = merge([manifest()], results=[failed(1, raw_output="word " * 10_000)])
    assert to_html(report).count("word") <= 40
    assert to_markdown(report).count("word") <= 40


def test_unpriced_is_said_and_never_compared_or_shown_as_nothing() -> None:
    report = merge([manifest(cost=Cost(unpriced=True))], plan=plan(chunks=1))
    text = to_markdown(report)
    assert "- Spent: **unpriced** (planned $1.2500)" in text
    assert "Against the plan" not in text
    partly = to_markdown(merge([manifest(cost=Cost(usd=Decimal("0.2"), unpriced=True))]))
    assert "- Spent: **at least $0.2000**" in partly
    assert "| For each usable item | at least $0.002222 |" in partly


def test_an_estimate_of_tokens_is_marked() -> None:
    text = to_markdown(merge([manifest(usage=Usage(prompt=7, completion=3, estimated=True))]))
    assert "| In, all | – | ≈ 7 | – |" in text


def test_a_bare_manifest_makes_a_report_without_empty_tables() -> None:
    bare = manifest(items=0, counts={}, latency_ms={}, limits={}, prompt=None, model="", schema_digest="")
    report = merge([replace(bare, started_at=0.0, ended_at=0.0, usage=Usage(), cost=Cost())])
    text = to_markdown(report)
    for absent in ("## Latency", "## Limits", "## Examples", "## Chunks"):
        assert absent not in text
    assert "- Usable items: **–** (0 of 0)" in text
    assert "- Took: **unknown**" in text
    assert "When calls were slow" not in to_html(report)


def test_many_chunks_do_not_make_an_endless_page() -> None:
    parts = [manifest(chunk=number, fingerprint=f"f{number}") for number in range(1000)]
    text = to_markdown(merge(parts))
    assert "| and 950 more |" in text
    assert len(text.splitlines()) < 140


def test_every_outcome_has_a_meaning_and_a_colour() -> None:
    assert MEANINGS.keys() == set(Outcome)
    page = to_html(full())
    for outcome in Outcome:
        assert f"--{outcome}: #" in page


def test_the_heat_map_shades_by_count_and_names_each_cell() -> None:
    page = to_html(full())
    assert page.count('class="h8" title="2 below 1.02 s, 2026-05-05 16:5') == 25
    assert 'title="2 below 16.4 s' in page
    for shade in range(1, 9):
        assert f".h{shade} {{" in page
