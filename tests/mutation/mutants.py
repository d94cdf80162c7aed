"""Small breakages of a module, one at a time: each condition, comparison, name of a set, and number once."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line, what is broken there, and the whole module with that breakage."""
    tree = ast.parse(source)
    count = sum(1 for _ in ast.walk(tree))
    for place in range(count):
        for way in range(8):
            mutant = copy.deepcopy(tree)
            node = next(node for at, node in enumerate(ast.walk(mutant)) if at == place)
            told = _broken(node, way)
            if told is None:
                break
            yield getattr(node, "lineno", 0), told, ast.unparse(ast.fix_missing_locations(mutant))


def _broken(node: ast.AST, way: int) -> str | None:
    """Break a node in the way of that number; None when there is no such way."""
    if isinstance(node, ast.If | ast.IfExp | ast.While) and way == 0:
        before = ast.unparse(node.test)
        node.test = ast.UnaryOp(op=ast.Not(), operand=node.test)
        return f"not ({before})"
    if isinstance(node, ast.BoolOp) and way < len(node.values):
        dropped = node.values.pop(way)
        return f"without {ast.unparse(dropped)}"
    if isinstance(node, ast.Compare) and way == 0:
        before, kind = ast.unparse(node), type(node.ops[0])
        node.ops[0] = _COMPARISONS[kind]()
        return f"{before} → {ast.unparse(node)}"
    if isinstance(node, ast.Set | ast.Tuple) and _are_constants(node.elts) and way < len(node.elts):
        dropped = node.elts.pop(way)
        return f"without {ast.unparse(dropped)}"
    if isinstance(node, ast.Dict) and way < len(node.keys) and _are_constants(node.values):
        key = node.keys.pop(way)
        node.values.pop(way)
        return f"without {ast.unparse(key) if key else '**'}"
    if isinstance(node, ast.Constant) and way == 0 and type(node.value) in (int, float):
        node.value += 1
        return f"{node.value - 1} → {node.value}"
    return None


def _are_constants(nodes: list[ast.expr]) -> bool:
    return bool(nodes) and all(isinstance(node, ast.Constant) for node in nodes)
