"""
Documents that are valid for a JSON schema; the same seed gives the same document.

References, combinations, types, bounds, formats and patterns are followed. Beyond a depth of :data:`DEEP`
the shortest way out is taken, so that recursive schemas end. Schemas with keywords that cannot be followed
(``not``, ``if``, ``uniqueItems``, …) are sampled again until ``jsonschema`` accepts the document.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import Any

from airflow_provider_llmbatch.errors import InputError
from airflow_provider_llmbatch.simulator import pattern_sample, text_sample
from airflow_provider_llmbatch.simulator.schema_tree import NEVER, Schema, SchemaTree, merged, types_of

#: Depth from which on only what is required is made.
DEEP = 4
#: Documents that are tried for a schema that needs checking.
TRIES = 50
#: Draws for one string, array item or number that has to meet a further condition.
DRAWS = 20

#: Keywords that the sampler follows only in part.
_UNSURE = (
    '"allOf"',
    '"contains"',
    '"dependencies"',
    '"dependentRequired"',
    '"dependentSchemas"',
    '"if"',
    '"multipleOf"',
    '"not"',
    '"oneOf"',
    '"pattern"',
    '"patternProperties"',
    '"propertyNames"',
    '"unevaluatedItems"',
    '"unevaluatedProperties"',
    '"uniqueItems"',
)


def document(schema: Schema, seed: str) -> Any:
    """
    Return a document that ``schema`` accepts, decided by ``seed``.

    :raises InputError: when the schema is none, or no document is found that it accepts.
    """
    text = json.dumps(schema)
    tree, validator = _prepared(text)
    needs_check = any(keyword in text for keyword in _UNSURE)
    for number in range(TRIES if needs_check else 1):
        found = _Sampler(tree, Random(f"{seed}/{number}")).value(tree.root, 0)
        if not needs_check or validator.is_valid(found):
            return found
    raise InputError(f"no document was found that the schema accepts, in {TRIES} tries: {text[:200]}")


@lru_cache(maxsize=256)
def _prepared(text: str) -> tuple[SchemaTree, Any]:
    import jsonschema

    schema = json.loads(text)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise InputError(f"the schema is not valid at {error.json_path}: {error.message}") from None
    tree = SchemaTree(schema)
    if tree.height(schema) == NEVER:
        raise InputError("no finite document satisfies the schema")
    return tree, kind(schema)


class _Sampler:
    """One document in the making."""

    def __init__(self, tree: SchemaTree, rng: Random) -> None:
        self._tree = tree
        self._rng = rng

    def value(self, schema: Any, depth: int) -> Any:
        """Return a document for ``schema`` that lies ``depth`` levels below the root."""
        flat = self._tree.flat(schema)
        if "const" in flat:
            return flat["const"]
        if "enum" in flat:
            return self._rng.choice(flat["enum"])
        for word in ("anyOf", "oneOf"):
            if flat.get(word):
                rest = {name: part for name, part in flat.items() if name != word}
                branch = self._tree.flat(self._choose(flat[word], depth))
                return self.value(merged(rest, branch), depth)
        return self._typed(flat, depth)

    def _choose(self, branches: list[Any], depth: int) -> Any:
        heights = [self._tree.height(branch) for branch in branches]
        if depth >= DEEP:
            return branches[heights.index(min(heights))]
        open_branches = [branch for branch, height in zip(branches, heights, strict=True) if height < NEVER]
        telling = [branch for branch in open_branches if branch != {"type": "null"}]
        # A null says little, so it is rarer than its share.
        rare = not telling or self._rng.random() < 0.1
        return self._rng.choice(open_branches if rare else telling)

    def _typed(self, schema: Schema, depth: int) -> Any:
        names = types_of(schema)
        name = "null" if depth >= DEEP and "null" in names else self._rng.choice(names)
        if name == "object":
            return self._object(schema, depth)
        if name == "array":
            return self._array(schema, depth)
        if name == "string":
            return self._string(schema)
        if name == "boolean":
            return self._rng.random() < 0.5
        return None if name == "null" else self._number(schema, whole=name == "integer")

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", ())
        chosen = [name for name in properties if name in required or self._wants(properties[name], depth)]
        chosen += [name for name in required if name not in properties]
        while len(chosen) > schema.get("maxProperties", math.inf):
            chosen.remove(next(name for name in reversed(chosen) if name not in required))
        other = schema.get("additionalProperties", True)
        found = {name: self.value(properties.get(name, other), depth + 1) for name in chosen}
        is_map = not properties and (isinstance(other, Mapping) or "patternProperties" in schema)
        wanted = schema.get("minProperties", 2 if is_map and depth < DEEP else 0)
        for _ in range(DRAWS):
            if len(found) >= min(wanted, schema.get("maxProperties", math.inf)):
                break
            name, part = self._further(schema, other)
            found.setdefault(name, self.value(part, depth + 1))
        return found

    def _wants(self, schema: Any, depth: int) -> bool:
        return depth < DEEP and self._tree.height(schema) < NEVER and self._rng.random() < 0.8

    def _further(self, schema: Schema, other: Any) -> tuple[str, Any]:
        """Return name and schema of one more property."""
        if "patternProperties" in schema:
            pattern, part = self._rng.choice(list(schema["patternProperties"].items()))
            return pattern_sample.matching(self._rng, pattern), part
        if "propertyNames" in schema:
            return str(self.value({"type": "string", **self._tree.flat(schema["propertyNames"])}, 0)), other
        return self._rng.choice(text_sample.WORDS), other

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        items = schema.get("items", True)
        first = list(items if isinstance(items, list) else schema.get("prefixItems", ()))
        further = schema.get("additionalItems", True) if isinstance(items, list) else items
        least = schema.get("minItems", 1 if "contains" in schema else 0)
        most = schema.get("maxItems", max(least, len(first)) + 2)
        if further is False or self._tree.height(further) == NEVER:
            most = min(most, len(first))
        if "contains" in schema:
            further = {"allOf": [further, schema["contains"]]}
        wanted = least if depth >= DEEP else self._rng.randint(min(max(least, len(first), 1), most), most)
        found: list[Any] = []
        for number in range(wanted):
            part = first[number] if number < len(first) else further
            self._append(found, part, depth, is_set=schema.get("uniqueItems", False))
        return found

    def _append(self, found: list[Any], part: Any, depth: int, *, is_set: bool) -> None:
        for _ in range(DRAWS):
            value = self.value(part, depth + 1)
            if not is_set or value not in found:
                found.append(value)
                return

    def _string(self, schema: Schema) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        if "pattern" in schema:
            for _ in range(DRAWS):
                text = pattern_sample.matching(self._rng, schema["pattern"])
                if least <= len(text) <= (most if most is not None else math.inf):
                    break
            return text
        text = text_sample.formatted(self._rng, schema.get("format", "")) or ""
        return text or text_sample.fitting(self._rng, least, most)

    def _number(self, schema: Schema, *, whole: bool) -> float:
        step = schema.get("multipleOf", 1 if whole else 0.01)
        if whole and step != int(step):
            step = 1
        low, high = _bounds(schema)
        first, last = math.ceil(low / step), math.floor(high / step)
        for _ in range(DRAWS):
            if first > last:
                break
            count = self._rng.randint(first, last)
            value = count * int(step) if whole else round(count * step, 10)
            if _is_inside(value, schema):
                return value
        return (low + high) / 2


def _bounds(schema: Schema) -> tuple[float, float]:
    lows = [schema[name] for name in ("minimum", "exclusiveMinimum") if name in schema]
    highs = [schema[name] for name in ("maximum", "exclusiveMaximum") if name in schema]
    if lows and not highs:
        return max(lows), max(lows) + 100 * max(1, schema.get("multipleOf", 1))
    if highs and not lows:
        return min(0, min(highs) - 100), min(highs)
    return (max(lows), min(highs)) if lows else (0, 100 * max(1, schema.get("multipleOf", 1)))


def _is_inside(value: float, schema: Schema) -> bool:
    step = schema.get("multipleOf")
    return (
        schema.get("exclusiveMinimum", -math.inf) < value < schema.get("exclusiveMaximum", math.inf)
        and schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
        and (step is None or (value / step).is_integer())
    )
