from __future__ import annotations

import random
import re
import string
import time
from collections import Counter

import pytest
import sacrebleu

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.rollout.texts import Bleu, ExactMatch, TokenF1, normalised, tokens
from tests.engine.rollout.answers import answer, score

WORDS = "The a an quick, brown fox! jumps over lazy-dogs (twice) 3.5 € don't stop; café naïve".split()


def texts(seed: int, count: int, longest: int = 30) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(0, longest))) for _ in range(count)]


def squad(text: str) -> str:
    """Return a text as the evaluation script of SQuAD 1.1 normalises it."""
    text = "".join(char for char in text.lower() if char not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def squad_f1(output: str, reference: str) -> float:
    ours, theirs = squad(output).split(), squad(reference).split()
    if not ours or not theirs:
        return float(ours == theirs)
    same = sum((Counter(ours) & Counter(theirs)).values())
    return 2.0 * same / (len(ours) + len(theirs))


def test_f1_and_exact_match_are_those_of_the_script_for_squad():
    for output, reference in zip(texts(1, 500), texts(2, 500), strict=True):
        assert score(TokenF1(), output, reference) == pytest.approx(squad_f1(output, reference), abs=1e-9)
        assert score(ExactMatch(), output, reference) == float(squad(output) == squad(reference))


def test_bleu_is_that_of_the_library():
    pairs = [pair for pair in zip(texts(3, 300), texts(4, 300), strict=True) if pair[1].strip()]
    for output, reference in pairs:
        expected = sacrebleu.sentence_bleu(output, [reference], use_effective_order=True).score / 100
        assert score(Bleu(), output, reference) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("output", "reference", "bleu", "f1", "exact"),
    [
        ("", "a b c", 0.0, 0.0, 0.0),
        ("yes", "yes", 1.0, 1.0, 1.0),
        ("x", "\f", None, 0.0, 0.0),
        ("", "", None, 1.0, 1.0),
        ("The", "a", 0.0, 1.0, 1.0),
        ("...", "?", 0.0, 1.0, 1.0),
        ("你好，世界。", "你好，世界。", 1.0, 1.0, 1.0),
        ("no", "yes", 0.0, 0.0, 0.0),
    ],
)
def test_empty_single_and_cjk_texts_have_values(output, reference, bleu, f1, exact):
    """P93: what BLEU is not defined for is left out and counted, all else has a value."""
    assert score(Bleu(), output, reference) == (None if bleu is None else pytest.approx(bleu, abs=1e-9))
    assert score(TokenF1(), output, reference) == f1
    assert score(ExactMatch(), output, reference) == exact


def test_blank_references_are_counted():
    grades = Bleu().grade([answer("x", "\f"), answer("x", ["", "x"]), answer("x", None)])
    assert grades.scores == [None, pytest.approx(1.0), None]
    assert grades.note == "tokenizer 13a, 2 blank references left out"


def test_chinese_japanese_and_korean_are_read_by_character():
    assert tokens("我有 2 本書。") == ["我", "有", "2", "本", "書"]
    assert tokens("ネコです") == list("ネコです")
    assert tokens("안녕") == list("안녕")
    assert tokens("GPT的answer") == ["gpt", "的", "answer"]
    assert score(TokenF1(), "我有三本書", "我有兩本書") == pytest.approx(0.8)


def test_punctuation_of_all_scripts_goes_and_letters_stay():
    assert normalised("“The Café” — «déjà vu»…") == "café déjà vu"


@pytest.mark.parametrize(
    ("references", "tokenizer"),
    [
        (["the cat", "一"], "13a"),
        (["天气很好"], "zh"),
        (["今日は天気がいい"], "char"),
        (["오늘"], "char"),
        (["12"], "13a"),
    ],
)
def test_the_tokenizer_of_bleu_follows_the_references_and_is_recorded(references, tokenizer):
    note = Bleu().grade([answer("x", one) for one in references]).note
    assert note == f"tokenizer {tokenizer}"


def test_a_language_that_is_named_decides():
    assert Bleu(language="zh").grade([answer("x", "the cat")]).note == "tokenizer zh"
    chinese = "今天天气很好"
    expected = sacrebleu.sentence_bleu(chinese[:5], [chinese], tokenize="zh", use_effective_order=True).score
    assert score(Bleu(), chinese[:5], chinese) == pytest.approx(expected / 100, abs=1e-9)


def test_of_several_references_the_best_counts():
    assert score(TokenF1(), "Paris", ["London", "Paris"]) == 1.0
    assert score(ExactMatch(), "42", [41, 42]) == 1.0
    assert score(TokenF1(), "Paris", []) is None


def test_a_field_of_an_object_can_be_the_text():
    output = {"answer": {"text": "Paris"}}
    for grader in (TokenF1(field="answer.text"), ExactMatch(field="answer.text"), Bleu(field="answer.text")):
        assert score(grader, output, "Paris") == pytest.approx(1.0)
    assert score(TokenF1(field="answer.missing"), output, "Paris") == 0.0


@pytest.mark.parametrize("grader", [TokenF1(), ExactMatch(), Bleu()], ids=lambda each: each.name)
def test_a_reply_that_cannot_be_used_scores_nothing_and_a_failed_call_is_missing(grader):
    """P99: rate limits and outages are no wrong answers."""
    for outcome in (Outcome.REFUSED, Outcome.TRUNCATED, Outcome.INVALID_OUTPUT, Outcome.CONTENT_FILTERED):
        assert score(grader, None, "yes", outcome=outcome) == 0.0
    for outcome in (Outcome.EXHAUSTED, Outcome.UNSENT, Outcome.BAD_REQUEST, Outcome.EDITED):
        assert score(grader, "yes", "yes", outcome=outcome) is None
    assert score(grader, "yes", None) is None


def test_a_thousand_pairs_are_graded_in_seconds():
    answers = [answer(*pair) for pair in zip(texts(5, 1000, 80), texts(6, 1000, 80), strict=True)]
    began = time.process_time()
    for grader in (Bleu(), TokenF1()):
        assert len(grader.grade(answers).scores) == 1000
    assert time.process_time() - began < 5.0
