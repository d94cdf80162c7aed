"""A prompt and an item become messages, or the reason why they cannot. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from jinja2.exceptions import SecurityError, UndefinedError

from airflow_provider_llmbatch.engine.items import Item, ItemError, Json, Message
from airflow_provider_llmbatch.engine.prompt.load import Prompt
from airflow_provider_llmbatch.engine.prompt.template import (
    MAX_RENDERED_CHARACTERS,
    NullValue,
    TooLarge,
    fill,
    variables,
)

#: Variable names in a message are cut to this many.
_NAMES_SHOWN = 20
#: Characters of a template error that are passed on.
_ERROR_CHARACTERS = 200


class _UnrenderedError(ValueError):
    """Why there are no messages, in words."""


def render(prompt: Prompt, item: Item) -> list[Message] | ItemError:
    """
    Return the messages of an item: the prompt's system message first, then the item's own.

    An item's ``vars`` fill the user template. Its ``prompt`` goes into the template's variable ``prompt``,
    or is the user message itself when the template has no such variable. Its ``messages`` stay as they are.
    """
    values = _values(item)
    try:
        system = _filled(prompt.system, values)
        turns = _turns(prompt, item, values)
    except _UnrenderedError as problem:
        message = f"Item {item.id!r} cannot be rendered with {prompt.ref}: {problem}"
        return ItemError(kind="unrendered", message=message)
    return [{"role": "system", "content": system}, *turns] if system else turns


def required_variables(prompt: Prompt) -> frozenset[str]:
    """
    Return the variables that an item's ``vars`` must hold.

    Those with a ``default`` and those tested with ``is defined`` are not among them.
    """
    return _required(prompt.system) | _required(prompt.user or "")


def _required(template: str) -> frozenset[str]:
    names, optional = variables(template)
    return names - optional


def _values(item: Item) -> Mapping[str, Json]:
    return {"prompt": item.prompt} if item.prompt is not None else item.vars or {}


def _turns(prompt: Prompt, item: Item, values: Mapping[str, Json]) -> list[Message]:
    if item.messages is not None:
        return list(item.messages)
    user = prompt.user
    if item.prompt is not None and (user is None or "prompt" not in variables(user)[0]):
        return [{"role": "user", "content": item.prompt}]
    if user is None:
        raise _UnrenderedError("the prompt has no user template for the item's vars; add 'user' to it")
    text = _filled(user, values)
    if not text.strip():
        raise _UnrenderedError("the user message is empty")
    return [{"role": "user", "content": text}]


def _filled(template: str, values: Mapping[str, Json]) -> str:
    missing = _required(template) - values.keys()
    if missing:
        raise _UnrenderedError(f"{_named('variable', missing)} missing; the item has {_present(values)}")
    try:
        return fill(template, values)
    except NullValue as error:
        null = {name for name in variables(template)[0] if name in values and values[name] is None}
        what = _named("variable", null) if null else "a value inside a variable is"
        raise _UnrenderedError(f"{what} null; give a value, or a default in the template") from error
    except TooLarge as error:
        raise _UnrenderedError(f"the text grows beyond {MAX_RENDERED_CHARACTERS:,} characters") from error
    except (UndefinedError, SecurityError) as error:
        reason = str(error)[:_ERROR_CHARACTERS]
        raise _UnrenderedError(f"{reason}; the item has {_present(values)}") from error
    # a template can do anything with a value, and the error's own text can quote the value
    except Exception as error:
        raise _UnrenderedError(f"the template fails on these values with {type(error).__name__}") from error


def _named(noun: str, names: frozenset[str] | set[str]) -> str:
    listed = ", ".join(repr(name) for name in sorted(names)[:_NAMES_SHOWN])
    return f"{noun} {listed} is" if len(names) == 1 else f"{noun}s {listed} are"


def _present(values: Mapping[str, Json]) -> str:
    names = sorted(str(name)[:60] for name in values)
    listed = ", ".join(repr(name) for name in names[:_NAMES_SHOWN]) or "no variables"
    return f"{listed} and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else listed
