from __future__ import annotations

import pytest

from airflow_provider_llmbatch.engine.rollout.sheet import Sheet
from airflow_provider_llmbatch.errors import InputError
from tests.engine.rollout.trials import paired

SHEET = Sheet(
    scores=(
        paired([0.5, 1.0], [0.25], missing_candidate=1, note="tokenizer zh"),
        paired([], [], "broken", failure="OSError", is_paired=False, lower_is_better=True),
    ),
    used=("a", "b"),
    mismatch_p=0.25,
)


def test_scores_are_read_as_they_were_written():
    assert Sheet.read(SHEET.lines(), "s") == SHEET
    assert Sheet.read(Sheet(scores=()).lines(), "s") == Sheet(scores=())


@pytest.mark.parametrize("rows", [[], [b"{"], [b'{"type": "round", "schema_version": 99}'], [b"[]"]])
def test_what_holds_no_scores_is_refused(rows):
    with pytest.raises(InputError, match="holds no grades"):
        Sheet.read(rows, "s")


def test_a_score_of_a_metric_that_nothing_is_said_of_is_refused():
    head, _, *rest = SHEET.lines()
    with pytest.raises(InputError, match="token_f1"):
        Sheet.read([head, *rest], "s")
