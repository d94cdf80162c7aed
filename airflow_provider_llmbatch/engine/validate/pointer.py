"""Find one's way in a JSON Schema document: references, alternatives, what may be null."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

Node = Mapping[str, Any]

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_SHAPE = ("type", "properties", "items", "enum", "const")


def resolve(root: Node, reference: str) -> Any:
    """
    Return the part of ``root`` that a local reference such as ``#/$defs/Item`` names.

    :raises LookupError: when it names nothing in this document.
    """
    if reference != "#" and not reference.startswith("#/"):
        raise LookupError(reference)
    node: Any = root
    for part in reference[1:].split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(key)] if isinstance(node, list) else node[key]
        except (TypeError, ValueError) as error:
            raise LookupError(reference) from error
    return node


def branches(root: Node, node: Any, seen: frozenset[int] = frozenset()) -> Iterator[Node]:
    """Yield every plain schema that ``node`` stands for, references and alternatives followed."""
    if not isinstance(node, Mapping) or id(node) in seen:
        return
    seen |= {id(node)}
    children = [child for word in _ALTERNATIVES for child in node.get(word, ())]
    if "$ref" in node:
        children.append(resolve(root, node["$ref"]))
    for child in children:
        yield from branches(root, child, seen)
    if not children or any(word in node for word in _SHAPE):
        yield node


def allows_null(root: Node, node: Any) -> bool:
    """Tell whether null can satisfy ``node``; a schema that says nothing allows everything."""
    if not isinstance(node, Mapping):
        return node is True
    return any(_is_nullable(branch) for branch in branches(root, node))


def _is_nullable(branch: Node) -> bool:
    if "const" in branch:
        return branch["const"] is None
    if "enum" in branch:
        return None in branch["enum"]
    kinds = branch.get("type")
    return kinds is None or "null" in ([kinds] if isinstance(kinds, str) else kinds)
