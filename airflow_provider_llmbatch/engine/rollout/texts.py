"""Texts against references: exact match and F1 as for SQuAD, and BLEU."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from airflow_provider_llmbatch.engine.items import Json
from airflow_provider_llmbatch.engine.rollout.grader import (
    Answer,
    Grades,
    against_references,
    picked,
    text_of,
    texts_of,
)
from airflow_provider_llmbatch.errors import ConfigurationError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
#: Scripts that are written without spaces, or counted by character: Han, kana, Hangul.
_BY_CHARACTER = re.compile(
    "[\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
#: Tokenizers of sacrebleu by language; all others take that of the WMT evaluations.
_TOKENIZERS = {"zh": "zh", "ja": "char", "ko": "char", "th": "char"}
_USUAL = "13a"


def normalised(text: str) -> str:
    """
    Return a text without case, punctuation, English articles and needless spaces.

    Source: evaluation script of SQuAD 1.1 (P. Rajpurkar et al., 2016); punctuation of other scripts goes as
    in that of MLQA (P. Lewis et al., 2020).
    """
    kept = "".join(char for char in text.lower() if not _is_punctuation(char))
    return " ".join(_ARTICLES.sub(" ", kept).split())


def _is_punctuation(char: str) -> bool:
    return char in string.punctuation or unicodedata.category(char).startswith("P")


def tokens(text: str) -> list[str]:
    """Return the words of a normalised text; of Chinese, Japanese and Korean the characters."""
    return list(_tokens(normalised(text)))


def _tokens(text: str) -> Iterator[str]:
    yield from _BY_CHARACTER.sub(lambda found: f" {found[0]} ", text).split()


def f1(output: str, reference: str) -> float:
    """Return the harmonic mean of precision and recall of the tokens; of two empty texts 1."""
    ours, theirs = tokens(output), tokens(reference)
    if not ours or not theirs:
        return float(ours == theirs)
    common = sum((Counter(ours) & Counter(theirs)).values())
    if not common:
        return 0.0
    precision, recall = common / len(ours), common / len(theirs)
    return 2 * precision * recall / (precision + recall)


@dataclass(frozen=True)
class ExactMatch:
    """
    Whether the text is a right one, but for case, punctuation and articles.

    :param field: where in an output that is an object the text is, as a dotted path.
    """

    field: str = ""
    name: ClassVar[str] = "exact_match"
    lower_is_better: ClassVar[bool] = False

    def grade(self, answers: Sequence[Answer]) -> Grades:
        """Return 1 or 0 for each answer that has a reference."""

        def score(output: Json, reference: Json) -> float:
            text = normalised(text_of(picked(output, self.field)))
            return float(any(text == normalised(one) for one in texts_of(reference)))

        return Grades(scores=against_references(answers, score))


@dataclass(frozen=True)
class TokenF1:
    """
    F1 of the words, against the reference that fits best.

    :param field: where in an output that is an object the text is, as a dotted path.
    """

    field: str = ""
    name: ClassVar[str] = "token_f1"
    lower_is_better: ClassVar[bool] = False

    def grade(self, answers: Sequence[Answer]) -> Grades:
        """Return a score from 0 to 1 for each answer that has a reference."""

        def score(output: Json, reference: Json) -> float | None:
            text = text_of(picked(output, self.field))
            return max((f1(text, one) for one in texts_of(reference)), default=None)

        return Grades(scores=against_references(answers, score))


@dataclass(frozen=True)
class Bleu:
    """
    BLEU of each text by sacrebleu, with effective order, as texts may be shorter than four words.

    :param language: two letters, for the tokenizer; looked up in the references when left out: Chinese where
        most of their letters are Han.
    :param field: where in an output that is an object the text is, as a dotted path.
    """

    language: str = ""
    field: str = ""
    name: ClassVar[str] = "bleu"
    lower_is_better: ClassVar[bool] = False

    def grade(self, answers: Sequence[Answer]) -> Grades:
        """
        Return a score from 0 to 1 for each answer that has a reference with a visible character.

        :raises ConfigurationError: without sacrebleu.
        """
        try:
            from sacrebleu.metrics.bleu import BLEU
        except ImportError as error:
            raise ConfigurationError(
                "BLEU needs sacrebleu: install airflow-provider-llmbatch[grade]."
            ) from error
        given = [text for each in answers if each.reference is not None for text in texts_of(each.reference)]
        tokenizer = _TOKENIZERS.get(self.language or _language(given), _USUAL)
        bleu = BLEU(effective_order=True, tokenize=tokenizer)

        def score(output: Json, reference: Json) -> float | None:
            references = [text for text in texts_of(reference) if _is_visible(text)]
            if not references:
                return None
            found = bleu.sentence_score(text_of(picked(output, self.field)), references)
            # The library's 100 may be a little more.
            return min(1.0, float(found.score) / 100)

        blank = sum(not _is_visible(text) for text in given)
        note = f"tokenizer {tokenizer}" + (f", {blank} blank references left out" if blank else "")
        return Grades(scores=against_references(answers, score), note=note)


def _is_visible(text: str) -> bool:
    return bool(text.strip())


def _language(texts: Sequence[str]) -> str:
    """Return ``zh``, ``ja`` or ``ko`` where most letters are theirs; else nothing."""
    counts: Counter[str] = Counter()
    for text in texts:
        for char in text:
            if char.isalpha():
                counts[_script(char)] += 1
    if not counts:
        return ""
    # Japanese is written with Han as well, Chinese never with kana.
    if counts["ja"] and counts["ja"] + counts["zh"] > counts.total() / 2:
        return "ja"
    most, count = counts.most_common(1)[0]
    return most if count > counts.total() / 2 else ""


def _script(char: str) -> str:
    if not _BY_CHARACTER.match(char):
        return ""
    name = unicodedata.name(char, "")
    if "HIRAGANA" in name or "KATAKANA" in name:
        return "ja"
    return "ko" if "HANGUL" in name else "zh"
