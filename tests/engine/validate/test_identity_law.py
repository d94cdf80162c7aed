"""Valid JSON is never altered: design.md, invariant 8."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.validate.check import check
from airflow_provider_llmbatch.engine.validate.schema import output_schema

ANYTHING = output_schema({"type": ["object", "array", "string", "number", "boolean", "null"]})

#: Texts with what salvage looks for: fences, thoughts, brackets, commas.
TEXTS = st.text(max_size=12) | st.sampled_from(
    [
        "```json",
        "```",
        "<think>",
        "</think>",
        "{",
        "}",
        "[1,]",
        ",}",
        '"',
        "\\",
        "Here you go:",
        "// no",
        "NaN",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    value=VALUES,
    indent=st.sampled_from([None, 0, 2]),
    ascii_only=st.booleans(),
    around=st.sampled_from(["", " ", "\n"]),
)
def test_a_valid_document_comes_out_as_it_went_in(value, indent, ascii_only, around):
    text = around + json.dumps(value, indent=indent, ensure_ascii=ascii_only) + around
    checked = check(ANYTHING, text)
    assert checked.problem is None
    assert checked.salvage is None
    assert checked.output == value
    assert type(checked.output) is type(value)
