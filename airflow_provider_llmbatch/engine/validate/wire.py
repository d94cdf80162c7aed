"""
Rewrite a JSON Schema, once, into what structured output in strict mode takes.

Every object is closed and all its fields are required; a field that may be absent becomes nullable (see
:mod:`.absent` for the way back). Constraints that servers reject, such as ``minimum``, move into the
description in words. What the wire cannot hold is named; the full schema is checked afterwards anyway.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_llmbatch.engine.validate.pointer import Node, allows_null, resolve

#: keywords that every server takes; objects, arrays and alternatives have functions of their own
_KEPT = ("type", "enum", "const", "description", "$ref")
#: keywords that say nothing about valid values, or that are handled where they matter
_SILENT = frozenset(
    {
        *("title", "default", "example", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"),
        *("$schema", "$id", "$comment", "$anchor", "$defs", "definitions"),
        *("properties", "required", "additionalProperties", "items", "prefixItems"),
        *("anyOf", "oneOf", "allOf", "contentMediaType", "contentEncoding"),
    }
)
#: keywords that only an open schema can hold; the node goes out as it is
_OPEN = ("patternProperties", "if", "dependentSchemas", "$dynamicRef", "unevaluatedProperties")
#: longest constraint that is worth its tokens in a description
_LONGEST_WORDS = 80


@dataclass(frozen=True, slots=True)
class Wire:
    """A schema as it is sent."""

    #: None when there is nothing that can be sent
    schema: dict[str, Any] | None
    #: whether the server may enforce it to the letter
    strict: bool
    #: what is not on the wire, each with its place
    lost: tuple[str, ...]


def to_wire(schema: Node) -> Wire:
    """Return the strict wire form of ``schema``."""
    rewriter = _Rewriter(schema)
    name = "definitions" if "definitions" in schema else "$defs"
    definitions = {key: rewriter.node(each, key) for key, each in schema.get(name, {}).items()}
    if "$ref" in schema:
        # The root itself must be an object, a reference will not do.
        root = rewriter.node(resolve(schema, schema["$ref"]), "")
    else:
        root = rewriter.node(schema, "")
    if root.get("type") != "object" or "anyOf" in root:
        note = "$: only an object can be the root of a structured output; make it a field of a model"
        return Wire(None, False, (note,))
    if definitions:
        root = {**root, name: definitions}
    return Wire(root, rewriter.strict, tuple(dict.fromkeys(rewriter.lost)))


@dataclass(slots=True)
class _Rewriter:
    root: Node
    strict: bool = True
    lost: list[str] = field(default_factory=list)

    def node(self, node: Any, path: str) -> dict[str, Any]:
        if not isinstance(node, Mapping) or not node.keys() - {"title", "description", "default"}:
            return self._open(node, path, "any value")
        if too_open := [word for word in _OPEN if word in node]:
            return self._open(node, path, too_open[0])
        parts = node.get("allOf", ())
        if len(parts) > 1 or (parts and "properties" in node):
            return self._open(node, path, "allOf")
        if parts:
            return self.node({**{k: v for k, v in node.items() if k != "allOf"}, **parts[0]}, path)
        out = {word: node[word] for word in _KEPT if word in node}
        out |= self._alternatives(node, path) | self._object(node, path) | self._array(node, path)
        return _tidy(self._words(node, path, out))

    def _open(self, node: Any, path: str, what: str) -> dict[str, Any]:
        self.strict = False
        self.lost.append(f"{path or '$'}: {what}, so the server is not asked to be strict")
        return dict(node) if isinstance(node, Mapping) else {}

    def _alternatives(self, node: Node, path: str) -> dict[str, Any]:
        if "oneOf" in node and "discriminator" not in node:
            self.lost.append(f"{path or '$'}: oneOf is sent as anyOf")
        parts = [self.node(part, path) for word in ("anyOf", "oneOf") for part in node.get(word, ())]
        return {"anyOf": parts} if parts else {}

    def _object(self, node: Node, path: str) -> dict[str, Any]:
        fields = node.get("properties")
        if fields is None and not _may_be(node, "object"):
            return {}
        out: dict[str, Any] = {"type": node.get("type", "object")}
        if fields is not None:
            out["properties"] = {key: self._field(node, key, path) for key in fields}
            out["required"] = list(fields)
        extra = node.get("additionalProperties", fields is None)
        if extra is False:
            return {**out, "additionalProperties": False}
        self.strict = False
        self.lost.append(f"{path or '$'}: open to any key, so the server is not asked to be strict")
        return {**out, "additionalProperties": extra if extra is True else self.node(extra, f"{path}.*")}

    def _field(self, node: Node, key: str, path: str) -> dict[str, Any]:
        child = node["properties"][key]
        out = self.node(child, f"{path}.{key}".lstrip("."))
        if key in node.get("required", ()) or allows_null(self.root, child):
            return out
        return _nullable(out)

    def _array(self, node: Node, path: str) -> dict[str, Any]:
        first = node.get("prefixItems", ())
        if not _may_be(node, "array") and "items" not in node and not first:
            return {}
        children = [*first]
        if node.get("items") is not False and ("items" in node or not first):
            children.append(node.get("items", {}))
        parts = [self.node(child, f"{path}[]") for child in children]
        if first:
            self.lost.append(f"{path or '$'}: the order of the items' types")
        different = [part for place, part in enumerate(parts) if part not in parts[:place]]
        return {"items": different[0] if len(different) == 1 else {"anyOf": different}}

    def _words(self, node: Node, path: str, out: dict[str, Any]) -> dict[str, Any]:
        words = []
        for keyword, value in node.items():
            if keyword in _KEPT or keyword in _SILENT or keyword.startswith("x-"):
                continue
            text = f"{keyword} {value if isinstance(value, str) else json.dumps(value)}"
            self.lost.append(f"{path or '$'}: {text[:_LONGEST_WORDS]}")
            if len(text) <= _LONGEST_WORDS:
                words.append(text)
        if words:
            told = f"{out.get('description', '')} ({', '.join(words)})".strip()
            out["description"] = told
        return out


def _may_be(node: Node, kind: str) -> bool:
    kinds = node.get("type", ())
    return kind == kinds or (not isinstance(kinds, str) and kind in kinds)


def _nullable(node: dict[str, Any]) -> dict[str, Any]:
    kind = node.get("type")
    if isinstance(kind, str) and "enum" not in node and "const" not in node:
        return {**node, "type": [kind, "null"]}
    return {"anyOf": [node, {"type": "null"}]}


def _tidy(out: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in out and len(out) > 1:
        # A reference may have no neighbours.
        out = {"anyOf": [{"$ref": out.pop("$ref")}], **out}
    if "type" not in out and ("enum" in out or "const" in out):
        kinds = dict.fromkeys(_kind(value) for value in out.get("enum", [out.get("const")]))
        out["type"] = next(iter(kinds)) if len(kinds) == 1 else list(kinds)
    return out


def _kind(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")
