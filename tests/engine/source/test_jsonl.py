from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.items import BadItem, Item
from airflow_provider_llmbatch.engine.source import Row, open_source
from airflow_provider_llmbatch.engine.source.jsonl import JsonlSource
from airflow_provider_llmbatch.errors import InputError


def read(content: bytes, **limits: int) -> list[Row]:
    return list(JsonlSource("data.jsonl", lambda: io.BytesIO(content), **limits).rows())


def problem(content: bytes, **limits: int) -> str:
    (row,) = read(content, **limits)
    assert isinstance(row.item, BadItem)
    return row.item.error.message


def test_a_line_becomes_an_item_with_its_offset_and_content():
    content = b'{"id": "a", "prompt": "one"}\n{"prompt": "two"}\n'
    first, second = read(content)
    assert first.item == Item(index=0, id="a", prompt="one")
    assert second.item == Item(index=1, id="#1", prompt="two")
    assert (first.offset, second.offset) == (0, 29)
    assert second.raw == b'{"prompt": "two"}'


@pytest.mark.parametrize(
    "content",
    [
        b'{"prompt":"a"}\n{"prompt":"b"}',
        b'\xef\xbb\xbf{"prompt":"a"}\n{"prompt":"b"}\n',
        b'{"prompt":"a"}\r\n{"prompt":"b"}\r\n',
        b'\n{"prompt":"a"}\n\n  \t\n{"prompt":"b"}\n\n',
    ],
    ids=["no line end at the end", "byte order mark", "CRLF", "blank lines"],
)
def test_files_that_differ_in_form_only_give_the_same_items_and_hashes(content):
    rows = read(content)
    assert [(r.item.index, r.item.prompt, r.raw) for r in rows] == [
        (0, "a", b'{"prompt":"a"}'),
        (1, "b", b'{"prompt":"b"}'),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"prompt": "cut', "line 1: the row is no valid JSON: Unterminated string"),
        (b"not json", "is no valid JSON: Expecting value at column 1"),
        (b'{"prompt": "a"} {"prompt": "b"}', "is no valid JSON: Extra data"),
        (b'{"prompt": "\xff\xfe"}', "is not UTF-8: byte 0xff at column 13"),
        (b'{"prompt": "a", "prompt": "b"}', "has the key 'prompt' twice"),
        (b'{"vars": {"x": 1, "x": 2}}', "has the key 'x' twice"),
        (b'{"vars": {"x": NaN}}', "holds NaN"),
        (b'{"vars": {"x": -Infinity}}', "holds -Infinity"),
        (b'{"vars": {"x": 1e999}}', "holds the number 1e999"),
        (b'{"prompt": "\\ud83d"}', "half of a surrogate pair"),
        (b'{"vars": {"x": ' + b"7" * 5000 + b"}}", "holds a number that cannot be read"),
        (b'{"vars": {"x": ' + b"[" * 200_000, "is nested too deeply"),
        (b"[1, 2]", "is a list, not an object"),
    ],
)
def test_a_broken_line_is_a_bad_item_that_says_where_and_why(line, words):
    message = problem(line)
    assert message.startswith("data.jsonl, line 1: ")
    assert words in message


def test_a_bad_line_does_not_stop_the_others():
    rows = read(b'{"prompt":"a"}\n{"prompt":\n{"id":"c","prompt":"c"}\n')
    assert [type(r.item).__name__ for r in rows] == ["Item", "BadItem", "Item"]
    assert [r.item.index for r in rows] == [0, 1, 2]
    assert [r.item.id for r in rows] == ["#0", "#1", "c"]


def test_the_line_number_counts_blank_lines():
    rows = read(b'\n\n{"prompt":"a"}\n{broken\n')
    assert "data.jsonl, line 4:" in rows[1].item.error.message


def test_a_surrogate_pair_is_a_character():
    (row,) = read(b'{"prompt": "\\ud83d\\ude00"}')
    assert row.item.prompt == "\N{GRINNING FACE}"


def test_the_message_of_a_broken_line_does_not_quote_it():
    assert "secret" not in problem(b'{"prompt": "secret words", "prompt": "secret words"}')
    assert "secret" not in problem(b'{"prompt": "secret words')


def test_a_file_in_utf16_is_refused_as_a_whole():
    with pytest.raises(InputError, match="UTF-16; save it as UTF-8"):
        read('{"prompt": "a"}\n'.encode("utf-16"))


@pytest.mark.parametrize("size", [99, 100, 101, 102, 250])
def test_a_line_over_the_limit_is_a_bad_item_and_the_next_one_is_found(size):
    line = b'{"prompt":"' + b"x" * (size - 13) + b'"}'
    long, after = read(line + b'\n{"prompt":"after"}\n', max_row_bytes=100)
    assert isinstance(long.item, BadItem) == (size > 100)
    assert after.item.prompt == "after"
    assert after.offset == size + 1


def test_a_line_over_the_limit_is_never_loaded_whole(tmp_path):
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        file.write(b'{"prompt":"')
        for _ in range(40):
            file.write(b"x" * 1_000_000)
        file.write(b'"}\n{"prompt":"after"}\n')
    source = JsonlSource(str(path), lambda: path.open("rb"), max_row_bytes=1_000_000)
    tracemalloc.start()
    try:
        long, after = source.rows()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "is longer than 1,000,000 bytes" in long.item.error.message
    assert after.item.prompt == "after"
    assert peak < 8_000_000


def write(path: Path, count: int) -> Path:
    lines = (json.dumps({"id": f"i{n}", "prompt": f"text {n}"}) + "\n\n" for n in range(count))
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_reading_from_an_offset_gives_the_same_rows(tmp_path):
    source = open_source(write(tmp_path / "items.jsonl", 20))
    rows = list(source.rows())
    for start in (0, 1, 7, 19):
        assert list(source.rows(start=start, offset=rows[start].offset)) == rows[start:]
    assert list(source.rows(start=5, offset=rows[5].offset, stop=9)) == rows[5:9]


def test_reading_from_an_index_without_an_offset_gives_the_same_rows(tmp_path):
    source = open_source(write(tmp_path / "items.jsonl", 20))
    rows = list(source.rows())
    assert list(source.rows(start=5, stop=9)) == rows[5:9]


def test_after_a_jump_a_bad_line_is_named_by_its_byte():
    source = JsonlSource("data.jsonl", lambda: io.BytesIO(b'{"prompt":"a"}\n{broken\n'))
    (row,) = source.rows(start=1, offset=15)
    assert row.item.error.message.startswith("data.jsonl, byte 15: ")


def test_memory_does_not_grow_with_the_number_of_rows(tmp_path):
    def peak(count: int) -> int:
        source = open_source(write(tmp_path / f"{count}.jsonl", count))
        tracemalloc.start()
        try:
            assert sum(1 for _ in source.rows()) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(10_000) - peak(1_000) < 100_000
