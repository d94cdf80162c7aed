"""The Jinja sandbox: templates are the DAG author's, values are data and are never templated."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

#: Characters of the largest text that a template may make.
MAX_RENDERED_CHARACTERS = 4 * 1024 * 1024
#: Largest exponent in a template; beyond it a number alone could fill the memory.
_MAX_EXPONENT = 64


class NullValue(ValueError):
    """A template prints a null, which nobody wants to read as the word None."""


class TooLarge(ValueError):
    """A template makes more text than :data:`MAX_RENDERED_CHARACTERS`."""


class _Sandbox(ImmutableSandboxedEnvironment):
    # typeshed-like stubs call these instance attributes; the sandbox reads them from the class
    intercepted_binops: ClassVar[frozenset[str]] = frozenset({"*", "**"})  # type: ignore[misc]

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuse the two operators by which a short template makes an endless value."""
        if operator == "**" and isinstance(right, int | float) and abs(right) > _MAX_EXPONENT:
            raise SecurityError(f"** with an exponent over {_MAX_EXPONENT}")
        if operator == "*":
            for sequence, times in ((left, right), (right, left)):
                if isinstance(times, int) and isinstance(sequence, str | bytes | list | tuple):
                    _check_size(len(sequence) * times)
        return super().call_binop(context, operator, left, right)


def _check_size(characters: int) -> None:
    if characters > MAX_RENDERED_CHARACTERS:
        raise TooLarge


def _not_null(value: Any) -> Any:
    if value is None:
        raise NullValue
    return value


_SANDBOX = _Sandbox(undefined=StrictUndefined, autoescape=False, finalize=_not_null)


@functools.lru_cache(maxsize=64)
def _compiled(text: str) -> Template:
    template = _SANDBOX.from_string(text)
    # jinja makes a chain of two mappings, which takes long to walk, and it is walked for every item
    template.globals = dict(template.globals)
    return template


@functools.lru_cache(maxsize=64)
def _constant(text: str) -> str:
    return "".join(_compiled(text).generate())


def syntax_problem(text: str) -> str | None:
    """Return what is wrong with a template, in words, or None."""
    try:
        _compiled(text)
    except TemplateSyntaxError as error:
        return f"line {error.lineno}: {error.message}"
    return None


def fill(text: str, values: Mapping[str, Any]) -> str:
    """
    Return the text of a template with its values.

    :raises NullValue: when it prints a null.
    :raises TooLarge: when the text grows beyond all use.
    :raises Exception: whatever else the template does with the values.
    """
    if "{" not in text:
        # nothing to fill in, as in most system messages
        return _constant(text)
    pieces = []
    size = 0
    for piece in _compiled(text).generate(values):
        size += len(piece)
        _check_size(size)
        pieces.append(piece)
    return "".join(pieces)


@functools.lru_cache(maxsize=64)
def variables(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of all variables in a template, and of those it can do without."""
    tree = _SANDBOX.parse(text)
    tests = (t.node for t in tree.find_all(nodes.Test) if t.name in ("defined", "undefined"))
    defaults = (f.node for f in tree.find_all(nodes.Filter) if f.name in ("default", "d"))
    optional = {n.name for n in (*tests, *defaults) if isinstance(n, nodes.Name)}
    return frozenset(meta.find_undeclared_variables(tree)), frozenset(optional)
