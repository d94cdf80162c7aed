"""
BERTScore: whether two texts say the same in other words.

Source: T. Zhang et al., BERTScore: Evaluating Text Generation with BERT, ICLR 2020. Each token is matched
with the nearest one of the other text by cosine, and the score is the F1 of the means. Unrelated texts score
far above 0, so scores are rescaled: the mean of unrelated texts becomes 0, and 1 stays 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from airflow_provider_llmbatch.engine.items import Json, Outcome
from airflow_provider_llmbatch.engine.rollout.encoder import Encoder
from airflow_provider_llmbatch.engine.rollout.grader import Answer, Grades, picked, text_of, texts_of
from airflow_provider_llmbatch.engine.rollout.layers import Array

#: Pairs that are encoded at once.
_AT_ONCE = 128
#: Texts that have nothing to do with each other; the mean score of all their pairs is the baseline.
UNRELATED = (
    "The train to the coast leaves at six in the morning.",
    "Add the flour slowly and keep stirring.",
    "Her grandfather repaired clocks for fifty years.",
    "The committee will vote on the budget next week.",
    "Most owls hunt at night.",
    "Please send the invoice to our office in Lyon.",
    "He broke his arm while skiing.",
    "The stock fell four percent after the announcement.",
    "A prime number has exactly two divisors.",
    "They painted the kitchen yellow.",
    "Rain is expected in the north by evening.",
    "The second violin came in too early.",
    "Our router loses its connection every few hours.",
    "The museum keeps two thousand old maps.",
    "She forgot to water the tomatoes.",
    "Patients should take the tablets with food.",
)


def f1(outputs: Sequence[str], references: Sequence[str], encoder: Encoder) -> list[float]:
    """
    Return the score of each pair, not rescaled; 0 where one text is empty, 1 where both are.

    :raises TypeError: for one text in place of a list of them, whose letters would be scored.
    """
    for name, texts in (("outputs", outputs), ("references", references)):
        if isinstance(texts, str):
            raise TypeError(f"{name} is one text; give a list of texts.")
    texts = list(dict.fromkeys([*outputs, *references]))
    vectors = dict(zip(texts, encoder.vectors(texts), strict=True))
    with encoder.one_core_each():
        return [_f1(vectors[ours], vectors[theirs]) for ours, theirs in zip(outputs, references, strict=True)]


def _f1(output: Array, reference: Array) -> float:
    if not len(output) or not len(reference):
        return float(len(output) == len(reference))
    similar = output @ reference.T
    precision, recall = float(similar.max(axis=1).mean()), float(similar.max(axis=0).mean())
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


class BertScore:
    """
    BERTScore over an encoder in a local folder, rescaled.

    :param encoder: folder with ``config.json``, ``model.safetensors`` and ``tokenizer.json`` of a BERT.
    :param baseline: score that becomes 0; that of unrelated English sentences when left out.
    :param field: where in an output that is an object the text is, as a dotted path.
    """

    name: ClassVar[str] = "bertscore"
    lower_is_better: ClassVar[bool] = False

    def __init__(self, encoder: str, baseline: float | None = None, field: str = "") -> None:
        self._folder = encoder
        self._baseline = baseline
        self._field = field
        self._encoder: Encoder | None = None

    def grade(self, answers: Sequence[Answer]) -> Grades:
        """
        Return a score for each answer that has a reference: 1 for the same text, about 0 for another.

        :raises ConfigurationError: when the encoder cannot be read.
        """
        if self._encoder is None:
            self._encoder = Encoder(Path(self._folder))
        if self._baseline is None:
            first, second = zip(*itertools.combinations(UNRELATED, 2), strict=True)
            found = f1(first, second, self._encoder)
            self._baseline = sum(found) / len(found)
        scores: list[float | None] = []
        for start in range(0, len(answers), _AT_ONCE):
            scores += self._scored(answers[start : start + _AT_ONCE], self._encoder, self._baseline)
        return Grades(scores=scores, note=f"encoder {Path(self._folder).name}, baseline {self._baseline:.4f}")

    def _scored(self, answers: Sequence[Answer], encoder: Encoder, baseline: float) -> list[float | None]:
        scores: list[float | None] = []
        outputs: list[str] = []
        references: list[str] = []
        places: list[int] = []
        for place, answer in enumerate(answers):
            is_graded = answer.reference is not None and answer.is_answered
            scores.append(0.0 if is_graded and answer.result.outcome is not Outcome.OK else None)
            if is_graded and answer.result.outcome is Outcome.OK:
                right = texts_of(answer.reference)
                outputs += [self._text(answer.result.output)] * len(right)
                references += right
                places += [place] * len(right)
        for place, raw in zip(places, f1(outputs, references, encoder), strict=True):
            rescaled = (raw - baseline) / (1 - baseline)
            best = scores[place]
            # An empty text scores as one that cannot be used, not below.
            rescaled = 0.0 if raw == 0 else rescaled
            scores[place] = rescaled if best is None else max(best, rescaled)
        return scores

    def _text(self, output: Json) -> str:
        return text_of(picked(output, self._field))
