"""Reading a JSON schema: what its references mean, and how deep its shortest document is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from airflow_provider_llmbatch.errors import InputError

Schema = Mapping[str, Any]

#: Height of a schema that no finite document satisfies.
NEVER = math.inf
#: References followed in a row before a schema is taken for a circle.
_MAX_HOPS = 64
#: Which keywords tell the type of a schema that names none.
_HINTS = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties"),
    "array": ("items", "prefixItems", "minItems", "contains"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


class SchemaTree:
    """
    A schema with its definitions.

    :param root: the whole schema; references point into it.
    """

    def __init__(self, root: Schema) -> None:
        self.root = root
        self._heights = dict.fromkeys(_references(root), NEVER)
        self._settle()

    def flat(self, schema: Any) -> dict[str, Any]:
        """Return ``schema`` with its references followed and its ``allOf`` merged in."""
        if schema is True:
            return {}
        for _ in range(_MAX_HOPS):
            if schema is False:
                raise InputError("the schema contains a part that no document satisfies: false")
            if "$ref" in schema:
                schema = merged(self._target(schema["$ref"]), _without(schema, "$ref"))
            elif "allOf" in schema:
                whole = _without(schema, "allOf")
                for part in schema["allOf"]:
                    whole = merged(whole, self.flat(part))
                schema = whole
            else:
                return dict(schema)
        raise InputError("the schema's references run in a circle")

    def height(self, schema: Any) -> float:
        """Return the depth of the shortest document that ``schema`` accepts; inf when there is none."""
        if isinstance(schema, bool):
            return 0 if schema else NEVER
        heights = [self._heights[schema["$ref"]]] if "$ref" in schema else []
        heights += [self.height(part) for part in schema.get("allOf", ())]
        heights += [
            min(self.height(part) for part in schema[word]) for word in ("anyOf", "oneOf") if schema.get(word)
        ]
        return max([*heights, self._own_height(schema)])

    def _own_height(self, schema: Schema) -> float:
        if "const" in schema or "enum" in schema:
            return 0
        return min(self._height_as(name, schema) for name in types_of(schema))

    def _height_as(self, name: str, schema: Schema) -> float:
        if name == "object":
            properties = schema.get("properties", {})
            needed = [properties[key] for key in schema.get("required", ()) if key in properties]
        elif name == "array":
            items = schema.get("prefixItems", [schema.get("items", True)])
            needed = items[: schema.get("minItems", 0)]
        else:
            return 0
        return 1 + max((self.height(part) for part in needed), default=0)

    def _settle(self) -> None:
        for _ in self._heights:
            known = {ref: self.height(self._target(ref)) for ref in self._heights}
            if known == self._heights:
                return
            self._heights = known

    def _target(self, reference: str) -> Any:
        node: Any = self.root
        if not reference.startswith("#"):
            raise InputError(f"only references into the schema itself are followed, got {reference!r}")
        for step in reference.lstrip("#").split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(name)] if isinstance(node, list) else node[name]
            except (KeyError, IndexError, ValueError, TypeError):
                raise InputError(f"the schema has nothing at the reference {reference!r}") from None
        return {} if node is True else node


def merged(first: Schema, second: Schema) -> dict[str, Any]:
    """Return one schema for two that both have to hold; where they disagree the second wins."""
    both = {**first, **second}
    if "properties" in first and "properties" in second:
        mine, theirs = first["properties"], second["properties"]
        shared = {name: {"allOf": [mine[name], theirs[name]]} for name in mine if name in theirs}
        both["properties"] = {**mine, **theirs, **shared}
    if "required" in first and "required" in second:
        both["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    return both


def types_of(schema: Schema) -> list[str]:
    """Return the types a document may have, guessed from the other keywords when none is named."""
    named = schema.get("type")
    if named is not None:
        return [named] if isinstance(named, str) else list(named)
    return [name for name, words in _HINTS.items() if any(word in schema for word in words)] or ["string"]


def _without(schema: Schema, keyword: str) -> Schema:
    return {name: value for name, value in schema.items() if name != keyword}


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)
