"""What the demo of a rollout reads and shows; the rest of it needs a model."""

from __future__ import annotations

from airflow_provider_llmbatch.engine.rollout.verdict import Comparison, Verdict
from airflow_provider_llmbatch.simulator.demo_rollout import questions, row


def test_questions_have_all_their_answers_and_stray_lines_are_left_out():
    conversations = [["Who? ", "Ann"], "A stray line", ["Who?", "Anna", "A."], ["No answer"], [1, "x"]]
    assert questions(conversations) == {"Who?": ["Ann", "Anna", "A."]}


def test_a_metric_is_a_line_with_what_was_found_if_anything_was():
    silent = Comparison(metric="validity", verdict=Verdict.NOT_ENOUGH, base=37, candidate=3)
    assert row(silent) == "| validity | not_enough |  |  |  |  |  |  | 37 and 3 |"
    found = Comparison(
        metric="bleu",
        verdict=Verdict.WORSE,
        paired=True,
        base=79,
        candidate=79,
        mean_base=0.5,
        mean_candidate=0.25,
        threshold=0.02,
        effect=-0.25,
        low=-0.3,
        high=-0.2,
        p=0.001,
        p_holm=0.002,
        power=0.4,
    )
    assert row(found) == "| bleu | worse | 0.5 | 0.25 | -0.25 [-0.3, -0.2] | 0.02 | 0.002 | 0.40 | 79 pairs |"
