"""Ask again: the conversation, the reply that failed, and what was wrong with it."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_llmbatch.engine.items import ItemError, Message

#: longest part of the failed reply that is shown to the model again, in characters
REPLY_LENGTH = 4000


def reask(messages: Sequence[Message], reply_text: str | None, problem: ItemError) -> list[Message]:
    """
    Return the messages that ask for a corrected reply.

    :param messages: the item's own messages. Give these again on a second re-ask: only the latest failure is
        shown, so that the conversation does not grow with each one.
    :param reply_text: the reply that failed.
    :param problem: what :func:`.check.check` found.
    """
    asked = list(messages)
    wanted = "" if problem.kind == "empty" else " with the complete, corrected JSON, and with nothing else"
    if reply_text and reply_text.strip():
        asked.append({"role": "assistant", "content": _cut(reply_text)})
    asked.append(
        {
            "role": "user",
            "content": f"That reply cannot be used. {problem.message} Answer the same request again{wanted}.",
        }
    )
    return asked


def _cut(text: str) -> str:
    return text if len(text) <= REPLY_LENGTH else f"{text[:REPLY_LENGTH]}\n[the rest is left out]"
