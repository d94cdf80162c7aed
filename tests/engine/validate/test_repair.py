from __future__ import annotations

from airflow_provider_llmbatch.engine.items import ItemError
from airflow_provider_llmbatch.engine.validate.repair import REPLY_LENGTH, reask

ASKED = ({"role": "system", "content": "Be short."}, {"role": "user", "content": "Label it."})
PROBLEM = ItemError(kind="schema", message="The reply does not satisfy the schema: label: Field required.")


def test_a_re_ask_shows_the_failed_reply_and_what_was_wrong() -> None:
    messages = reask(ASKED, '{"lable": 1}', PROBLEM)
    assert messages[:2] == list(ASKED)
    assert messages[2] == {"role": "assistant", "content": '{"lable": 1}'}
    assert messages[3]["role"] == "user"
    assert "label: Field required" in messages[3]["content"]


def test_an_empty_reply_is_not_repeated() -> None:
    messages = reask(ASKED, None, ItemError(kind="empty", message="The reply has no text."))
    assert [message["role"] for message in messages] == ["system", "user", "user"]
    # Nobody knows that it should have been JSON.
    assert "JSON" not in messages[-1]["content"]


def test_a_re_ask_stays_short_and_leaves_the_conversation_alone() -> None:
    messages = reask(ASKED, "x" * 100_000, PROBLEM)
    assert sum(len(message["content"]) for message in messages) < REPLY_LENGTH + 500
    assert len(ASKED) == 2
