"""Bodies that services send, good and odd."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=20),
)
#: names that a reader may look for, so that odd values get to where they hurt
names = st.sampled_from(
    [
        "choices", "message", "content", "error", "usage", "code", "status", "type", "param", "innererror",
        "content_filter_result", "jailbreak", "filtered", "finish_reason", "prompt_tokens", "refusal",
        "completion_tokens", "total_tokens", "prompt_tokens_details", "cached_tokens", "model", "id", "text",
        "reasoning_content", "reasoning", "completion_tokens_details", "reasoning_tokens", "detail",
    ]
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(names, st.text(max_size=8)), inner, max_size=5)
    ),
    max_leaves=25,
)


def completion(content: Any = "fine", *, finish_reason: Any = "stop", **further: Any) -> dict[str, Any]:
    """Return a completion; ``further`` are fields of the whole."""
    message = {"role": "assistant", "content": content}
    return {
        "id": "chatcmpl-1",
        "model": "m-1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        **further,
    }
