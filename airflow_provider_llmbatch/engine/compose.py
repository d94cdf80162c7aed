"""An item becomes a request that is counted and reserved, or the result that says why it cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from airflow_provider_llmbatch.engine.items import Item, ItemError, Json, Message, Outcome, Request, Result
from airflow_provider_llmbatch.engine.prompt import Prompt, render
from airflow_provider_llmbatch.engine.tokens.count import COUNTED_PARAMS, TokenCounter
from airflow_provider_llmbatch.engine.tokens.reserve import DEFAULT_OUTPUT_TOKENS, output_tokens
from airflow_provider_llmbatch.errors import ConfigurationError, InputError

#: Wire parameters that are this package's own business, and where they belong instead.
RESERVED_PARAMS: Mapping[str, str] = {
    "model": "set it on the task",
    "messages": "give them as the item's messages",
    "stream": "replies are read whole; leave it out",
    "n": "an item has one reply; give more items",
}


class _Ceiling(NamedTuple):
    tokens: int
    name: str
    remedy: str


class Composer:
    """
    Makes requests for one prompt and one model; may be shared by threads.

    :param prompt: the prompt version.
    :param model: name of the model on the wire.
    :param counter: counts the tokens for that model.
    :param reserve: output tokens to reserve for a request without a cap.
    :param params: the task's parameters, over those of the prompt and under those of an item; a null
        takes a parameter away.
    :param response_format: wire form of the schema, when replies follow one.
    :param instructions: what the system message says about the schema, when the service does not show it.
    :param window: tokens that fit the model, when known.
    :param token_limit: tokens of the largest request that the limits can ever grant.
    :param variant: name of the variant, when several prompts are compared.
    :raises ConfigurationError: for a parameter of the task that is not its to set.
    :raises InputError: for one of the prompt.
    """

    def __init__(
        self,
        prompt: Prompt,
        model: str,
        counter: TokenCounter,
        *,
        reserve: Callable[[], int] = lambda: DEFAULT_OUTPUT_TOKENS,
        params: Mapping[str, Json] | None = None,
        response_format: Mapping[str, Json] | None = None,
        instructions: str | None = None,
        window: int | None = None,
        token_limit: int | None = None,
        variant: str | None = None,
    ) -> None:
        if problem := _reserved(prompt.params):
            raise InputError(f"The params of prompt {prompt.ref} hold {problem}.")
        if problem := _reserved(params or {}):
            raise ConfigurationError(f"The task's params hold {problem}.")
        schema = {"response_format": response_format} if response_format else {}
        self._prompt = prompt
        self._model = model
        self._counter = counter
        self._reserve = reserve
        self._params = {**prompt.params, **schema, **(params or {})}
        self._instructions = instructions
        self._params_tokens = counter.count_params(self._params)
        self._ceiling = _lower(window, token_limit)
        self._variant = variant

    @property
    def fixed_tokens(self) -> int:
        """Input tokens that every request has, whatever its item: system message, tools and schema."""
        parts = [part for part in (self._prompt.system, self._instructions) if part]
        system = [{"role": "system", "content": "\n\n".join(parts)}] if parts else []
        return self._counter.count_messages(system) + self._params_tokens

    def compose(self, item: Item, earlier: Sequence[Message] = ()) -> Request | Result:
        """
        Return the request of an item, or its final result: ``unrendered`` or ``too_long``.

        :param earlier: the earlier turns of the item's chain and their replies.
        """
        messages = self._messages(item, earlier)
        return messages if isinstance(messages, Result) else self._fitting(item, messages)

    def measure(self, item: Item, earlier: Sequence[Message] = ()) -> tuple[int, int] | Result:
        """Return an item's prompt and output tokens, fitting or not, or its ``unrendered`` row."""
        messages = self._messages(item, earlier)
        if isinstance(messages, Result):
            return messages
        params = _merged(self._params, item.params)
        return self._prompt_tokens(item, messages, params), output_tokens(
            params, learnt=self._reserve(), room=None
        )

    def variant(self, item: Item) -> str:
        """Return the name of the variant, the same for all items; empty without one."""
        return self._variant or ""

    def _messages(self, item: Item, earlier: Sequence[Message]) -> list[Message] | Result:
        messages = render(self._prompt, item)
        if isinstance(messages, ItemError):
            return self._failed(item, Outcome.UNRENDERED, messages)
        if problem := _reserved(item.params):
            error = ItemError(kind="unrendered", message=f"The params of item {item.id!r} hold {problem}.")
            return self._failed(item, Outcome.UNRENDERED, error)
        if self._instructions:
            messages = _instructed(messages, self._instructions)
        if earlier:
            head = 1 if messages[0]["role"] == "system" else 0
            messages[head:head] = earlier
        return messages

    def _prompt_tokens(self, item: Item, messages: Sequence[Message], params: Mapping[str, Json]) -> int:
        return self._counter.count_messages(messages) + self._extra_tokens(item.params, params)

    def _fitting(self, item: Item, messages: Sequence[Message]) -> Request | Result:
        params = _merged(self._params, item.params)
        prompt_tokens = self._prompt_tokens(item, messages, params)
        room = self._ceiling.tokens - prompt_tokens if self._ceiling else None
        output = output_tokens(params, learnt=self._reserve(), room=room)
        if self._ceiling and output > self._ceiling.tokens - prompt_tokens:
            error = _too_long(item, prompt_tokens, output, self._ceiling)
            return self._failed(item, Outcome.TOO_LONG, error)
        return Request(
            index=item.index,
            id=item.id,
            model=self._model,
            messages=messages,
            params=params,
            prompt=self._prompt.ref,
            prompt_tokens=prompt_tokens,
            output_tokens=output,
            metadata=item.metadata,
            variant=self._variant,
        )

    def _extra_tokens(self, own: Mapping[str, Json], params: Mapping[str, Json]) -> int:
        if any(name in own for name in COUNTED_PARAMS):
            return self._counter.count_params(params)
        return self._params_tokens

    def _failed(self, item: Item, outcome: Outcome, error: ItemError) -> Result:
        return Result(
            index=item.index,
            id=item.id,
            outcome=outcome,
            error=error,
            prompt=self._prompt.ref,
            variant=self._variant,
            metadata=item.metadata,
        )


def _instructed(messages: list[Message], instructions: str) -> list[Message]:
    """Add to the system message; the prompt or the item may have none, or one in parts."""
    first, *rest = messages
    if first["role"] != "system" or not isinstance(first.get("content"), str):
        return [{"role": "system", "content": instructions}, *messages]
    return [{**first, "content": f"{first['content']}\n\n{instructions}"}, *rest]


def _merged(params: Mapping[str, Json], own: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in {**params, **own}.items() if value is not None}


def _reserved(params: Mapping[str, Json]) -> str | None:
    name = next((name for name in params if name in RESERVED_PARAMS), None)
    return None if name is None else f"{name!r}: {RESERVED_PARAMS[name]}"


def _lower(window: int | None, token_limit: int | None) -> _Ceiling | None:
    ceilings = []
    if window is not None:
        ceilings.append(_Ceiling(window, "the model's context window", "use a model with a larger one"))
    if token_limit is not None:
        ceilings.append(_Ceiling(token_limit, "the token limit", "raise the limit in the connection"))
    return min(ceilings, default=None)


def _too_long(item: Item, prompt_tokens: int, output: int, ceiling: _Ceiling) -> ItemError:
    message = (
        f"Item {item.id!r} has {prompt_tokens:,} prompt tokens and reserves {output:,} for the reply, "
        f"{prompt_tokens + output:,} in all; {ceiling.name} is {ceiling.tokens:,}. "
        f"Shorten the item, lower max_tokens, or {ceiling.remedy}."
    )
    return ItemError(kind="too_long", message=message)
