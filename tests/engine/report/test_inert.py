from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.report.inert import inert


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain größe 数据 😀", "plain größe 数据 😀"),
        ("two\nlines\tand\u2028more  spaces ", "two lines and more spaces"),
        ("invoice\u202efdp.exe", "invoice⟨U+202E⟩fdp.exe"),
        ("\u2066a\u2069\u200b\ufeff", "⟨U+2066⟩a⟨U+2069⟩⟨U+200B⟩⟨U+FEFF⟩"),
        ("red \x1b[31m \x00", "red ⟨U+001B⟩[31m ⟨U+0000⟩"),
        ("family 👨\u200d👩 and می\u200cخواهم", "family 👨\u200d👩 and می\u200cخواهم"),
        ("half \ud83d", "half \ufffd"),
        ("", ""),
    ],
)
def test_what_hides_or_turns_text_around_becomes_visible(text: str, shown: str) -> None:
    assert inert(text) == shown


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_a_text_is_one_line_of_bounded_length(text: str, length: int) -> None:
    shown = inert(text, length)
    assert len(shown) <= length
    assert len(shown.splitlines()) <= 1
    shown.encode()


@pytest.mark.parametrize("text", ["x" * 201, "x" * 10_000_000, "\u202e" * 100])
def test_a_cut_is_marked(text: str) -> None:
    assert inert(text).endswith("…")
    assert len(inert(text)) == 200
