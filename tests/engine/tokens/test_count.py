from __future__ import annotations

import hashlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.tokens.count import TokenCounter
from airflow_provider_llmbatch.engine.tokens.encodings import (
    PATTERNS,
    encoding_name,
    load_encoding,
    vocabulary,
)
from airflow_provider_llmbatch.errors import ConfigurationError

O200K = TokenCounter("o200k_base")
CL100K = TokenCounter("cl100k_base")


@pytest.mark.parametrize(
    ("name", "sha", "size"),
    [
        ("o200k_base", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d", 199_998),
        ("cl100k_base", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7", 100_256),
    ],
)
def test_the_vocabularies_are_the_published_ones(name, sha, size):
    content = vocabulary(name)
    assert hashlib.sha256(content).hexdigest() == sha
    assert len(content.splitlines()) == size


def test_the_patterns_are_those_of_tiktoken(monkeypatch):
    from tiktoken_ext import openai_public

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})
    for name, pattern in PATTERNS.items():
        assert openai_public.ENCODING_CONSTRUCTORS[name]()["pat_str"] == pattern


@pytest.mark.parametrize(
    ("text", "o200k", "cl100k"),
    [
        ("", 0, 0),
        ("hello world", 2, 2),
        ("tiktoken is great!", 6, 6),
        ("antidisestablishmentarianism", 6, 6),
        ("2 + 2 = 4", 7, 7),
        ("お誕生日おめでとう", 8, 9),
    ],
)
def test_known_texts_have_their_known_counts(text, o200k, cl100k):
    assert (O200K.count(text), CL100K.count(text)) == (o200k, cl100k)


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-mini-2024-07-18", "o200k_base"),
        ("gpt-5-nano", "o200k_base"),
        ("gpt-4.1-mini", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("gpt-oss-120b", "o200k_base"),
        ("openai/gpt-4o", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-3.5-turbo-0125", "cl100k_base"),
        ("gpt-35-turbo", "cl100k_base"),
        ("ft:gpt-3.5-turbo:acme::x", "cl100k_base"),
        ("text-davinci-003", None),
        ("claude-x", None),
        ("", None),
    ],
)
def test_a_model_has_the_encoding_of_its_name(model, encoding):
    assert encoding_name(model) == encoding


def test_a_known_model_is_counted_as_it_is_and_nothing_is_said():
    said: list[str] = []
    counter = TokenCounter.for_model("gpt-4", on_unknown=said.append)
    assert (counter.encoding, counter.percent, said) == ("cl100k_base", 100, [])


def test_an_encoding_that_is_set_is_taken_at_its_word():
    said: list[str] = []
    counter = TokenCounter.for_model("my-deployment", encoding="cl100k_base", on_unknown=said.append)
    assert (counter.encoding, counter.percent, said) == ("cl100k_base", 100, [])
    with pytest.raises(ConfigurationError, match="encoding 'p50k_base' is not known; set one of cl100k_base"):
        TokenCounter.for_model("my-deployment", encoding="p50k_base")


def test_what_an_unknown_model_counts_is_rounded_up():
    counter = TokenCounter("o200k_base", percent=110)
    assert [counter.count("a" if n == 1 else " a" * n) for n in (1, 9, 10, 11)] == [2, 10, 11, 13]


def test_messages_count_their_text_and_the_chat_format_around_it():
    messages = [
        {"role": "system", "content": "You are brief."},
        {"role": "user", "name": "ada", "content": "hello world"},
    ]
    text = sum(O200K.count(t) for t in ("system", "You are brief.", "user", "ada", "hello world"))
    assert O200K.count_messages(messages) == 3 + 2 * 3 + 1 + text
    assert O200K.count_messages([]) == 3


def test_a_repeated_system_message_counts_every_time():
    system = [{"role": "system", "content": "You are brief."}]
    assert O200K.count_messages(system) == O200K.count_messages(system) > 3


def test_text_parts_tool_calls_and_results_count():
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"city": "Oslo"}'}}
    plain = [{"role": "user", "content": "hi"}]
    parts = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert O200K.count_messages(parts) == O200K.count_messages(plain)
    called = O200K.count_messages([{"role": "assistant", "content": None, "tool_calls": [call]}])
    assert called >= O200K.count(json.dumps(call, separators=(",", ":")))
    result = O200K.count_messages([{"role": "tool", "tool_call_id": "c1", "content": "sunny"}])
    assert result > O200K.count("sunny")


def test_tools_and_schemas_count_and_other_parameters_do_not():
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    compact = [json.dumps(v, separators=(",", ":")) for v in ([tool], schema)]
    assert O200K.count_params({"tools": [tool], "response_format": schema, "temperature": 0}) == sum(
        O200K.count(text) for text in compact
    )
    assert O200K.count_params({"temperature": 0, "tools": None}) == 0


@pytest.mark.parametrize("counter", [O200K, CL100K], ids=lambda c: c.encoding)
@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        " " * 1_000_000,
        "\n" * 1_000_000,
        "!" * 1_000_000,
        "漢" * 300_000,
        "7" * 1_000_000,
        "é\u0301" * 90_000,
    ],
    ids=["letters", "spaces", "line ends", "signs", "han", "digits", "combining"],
)
def test_a_megabyte_of_one_character_is_counted_at_once(counter, text):
    started = time.monotonic()
    assert counter.count(text) > 0
    assert time.monotonic() - started < 5


def test_a_long_text_counts_as_the_sum_of_its_words():
    text = "The quick brown fox jumps over the lazy dog. " * 4000
    exact = len(load_encoding("o200k_base").encode_ordinary(text))
    assert exact <= O200K.count(text) <= exact * 1.001


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00", "\x00", "\ufffe"])
def test_text_that_is_no_character_is_counted(text):
    assert O200K.count(text) > 0


@settings(max_examples=50)
@given(st.text(), st.text())
def test_two_texts_together_never_count_much_more_than_apart(one, other):
    assert O200K.count(one + other) <= O200K.count(one) + O200K.count(other) + 2


def test_threads_may_share_a_counter():
    messages = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "hello world"}]
    expected = O200K.count_messages(messages)
    barrier = threading.Barrier(4)

    def work(_: int) -> set[int]:
        barrier.wait()
        return {O200K.count_messages(messages) for _ in range(500)}

    with ThreadPoolExecutor(4) as pool:
        assert set().union(*pool.map(work, range(4))) == {expected}
