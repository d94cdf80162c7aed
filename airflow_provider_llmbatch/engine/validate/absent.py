"""
Read a null for a field that cannot be null as "absent".

The strict wire form makes every field required, and so lets a model write null where the schema has a
default. Going back, such a null is left out, and the default applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from airflow_provider_llmbatch.engine.items import Json
from airflow_provider_llmbatch.engine.validate.pointer import Node, allows_null, branches


class AbsentFields:
    """
    Leave out the nulls of a reply that stand for absent fields.

    What a node of the schema stands for is looked up once: a reply of a strict server is full of nulls.

    :param root: the JSON Schema document; it must not change afterwards.
    """

    def __init__(self, root: Node) -> None:
        self._root = root
        self._branches: dict[int, list[Node]] = {}
        self._optional: dict[tuple[int, str], bool] = {}

    def without(self, value: Json) -> Json:
        """Return ``value`` without the nulls that stand for an absent field."""
        return self._pruned(self._stands_for(self._root), value)

    def _stands_for(self, node: Any) -> list[Node]:
        found = self._branches.get(id(node))
        if found is None:
            found = self._branches[id(node)] = list(branches(self._root, node))
        return found

    def _pruned(self, nodes: Sequence[Node], value: Json) -> Json:
        if isinstance(value, list):
            return [self._pruned(self._items(nodes, place), each) for place, each in enumerate(value)]
        if not isinstance(value, dict):
            return value
        # Tags tell alternatives apart; where there is only one, there is nothing to tell.
        fitting = nodes if len(nodes) == 1 else [node for node in nodes if self._fits(node, value)]
        kept = {}
        for key, each in value.items():
            if each is None and self._is_absent(fitting, key):
                continue
            nested = isinstance(each, dict | list)
            kept[key] = self._pruned(self._field(fitting, key), each) if nested else each
        return kept

    def _is_absent(self, nodes: Sequence[Node], key: str) -> bool:
        owners = [node for node in nodes if key in node.get("properties", ())]
        return bool(owners) and all(self._is_optional(node, key) for node in owners)

    def _is_optional(self, node: Node, key: str) -> bool:
        found = self._optional.get((id(node), key))
        if found is None:
            found = key not in node.get("required", ()) and not allows_null(
                self._root, node["properties"][key]
            )
            self._optional[id(node), key] = found
        return found

    def _field(self, nodes: Sequence[Node], key: str) -> Sequence[Node]:
        return self._all(
            node.get("properties", {}).get(key, node.get("additionalProperties")) for node in nodes
        )

    def _items(self, nodes: Sequence[Node], place: int) -> Sequence[Node]:
        def item(node: Node) -> Any:
            first = node.get("prefixItems", ())
            return first[place] if place < len(first) else node.get("items")

        return self._all(item(node) for node in nodes)

    def _all(self, children: Iterable[Any]) -> Sequence[Node]:
        found = [self._stands_for(child) for child in children if isinstance(child, dict)]
        return found[0] if len(found) == 1 else [node for nodes in found for node in nodes]

    def _fits(self, node: Node, value: dict[str, Json]) -> bool:
        return all(
            any(_takes(branch, value[key]) for branch in self._stands_for(child))
            for key, child in node.get("properties", {}).items()
            if key in value and isinstance(child, dict)
        )


def _takes(branch: Node, value: Json) -> bool:
    if "const" in branch:
        return bool(branch["const"] == value)
    return value is None or value in branch.get("enum", (value,))
