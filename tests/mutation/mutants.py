"""
Small breakages of a module, one at a time.

Each condition, comparison, name of a set, number, and alternative of a pattern is broken once.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

#: Most ways to break one place: so many alternatives has the longest pattern at most.
WAYS = 24

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
    """Yield the line, what is broken there and in which function, and the whole module with that breakage."""
    tree = ast.parse(source)
    names, passed = _names(tree), _annotations(tree)
    for place, whole in enumerate(ast.walk(tree)):
        if whole in passed:
            continue
        for way in range(WAYS):
            mutant = copy.deepcopy(tree)
            node = next(node for at, node in enumerate(ast.walk(mutant)) if at == place)
            told = _broken(node, way)
            if told is None:
                break
            line = getattr(whole, "lineno", 0)
            yield line, f"{names[whole]}: {told}", ast.unparse(ast.fix_missing_locations(mutant))


def _annotations(tree: ast.Module) -> set[ast.AST]:
    """Return the places that nothing runs."""
    found = (getattr(node, name, None) for node in ast.walk(tree) for name in ("annotation", "returns"))
    return {node for annotation in found if annotation for node in ast.walk(annotation)}


def _names(tree: ast.Module) -> dict[ast.AST, str]:
    """Return in which function, class or constant each place is; the same names after lines were moved."""
    names: dict[ast.AST, str] = {}
    for statement in tree.body:
        for node in ast.walk(statement):
            names[node] = _name(statement)
        for inner in statement.body if isinstance(statement, ast.ClassDef) else ():
            names.update(dict.fromkeys(ast.walk(inner), f"{_name(statement)}.{_name(inner)}"))
    return {**dict.fromkeys(ast.walk(tree), ""), **names}


def _name(statement: ast.stmt) -> str:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return statement.name
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return ast.unparse(targets[0]) if targets[0] else ""


def _broken(node: ast.AST, way: int) -> str | None:
    """Break a node in the way of that number; None when there is no such way."""
    if isinstance(node, ast.If | ast.IfExp | ast.While) and way == 0:
        before = ast.unparse(node.test)
        node.test = ast.UnaryOp(op=ast.Not(), operand=node.test)
        return f"not ({before})"
    if isinstance(node, ast.BoolOp) and way < len(node.values):
        dropped = node.values.pop(way)
        return f"without {ast.unparse(dropped)}"
    if isinstance(node, ast.Compare) and way < len(node.ops):
        before, kind = ast.unparse(node), type(node.ops[way])
        node.ops[way] = _COMPARISONS[kind]()
        return f"{before} → {ast.unparse(node)}"
    if isinstance(node, ast.Set | ast.Tuple) and _are_constants(node.elts) and way < len(node.elts):
        dropped = node.elts.pop(way)
        return f"without {ast.unparse(dropped)}"
    if isinstance(node, ast.Dict) and way < len(node.keys) and _are_constants(node.values):
        key = node.keys.pop(way)
        node.values.pop(way)
        return f"without {ast.unparse(key) if key else '**'}"
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "re.compile":
        return _without_alternative(node, way)
    if isinstance(node, ast.Constant) and way == 0 and type(node.value) in (int, float):
        node.value += 1
        return f"{node.value - 1} → {node.value}"
    return None


def _are_constants(nodes: list[ast.expr]) -> bool:
    return bool(nodes) and all(isinstance(node, ast.Constant) for node in nodes)


def _without_alternative(call: ast.Call, way: int) -> str | None:
    """Drop one of the alternatives of a pattern, those inside of groups left as they are."""
    pattern = call.args[0]
    if not isinstance(pattern, ast.Constant):
        return None
    whole = _alternatives(pattern.value)
    if len(whole) == 1 or way >= len(whole):
        return None
    dropped = whole.pop(way)
    pattern.value = "|".join(whole)
    return f"without {dropped}"


def _alternatives(pattern: str) -> list[str]:
    found, depth, escaped, bracket = [""], 0, False, False
    for letter in pattern:
        if letter == "|" and depth == 0 and not escaped and not bracket:
            found.append("")
            continue
        found[-1] += letter
        if not escaped and not bracket:
            depth += (letter == "(") - (letter == ")")
        bracket = not escaped and (letter == "[" or (bracket and letter != "]"))
        escaped = letter == "\\" and not escaped
    return found
