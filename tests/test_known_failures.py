"""
Which known failures of such systems have a test, and which wait for the feature they belong to.

A test names the failures that it rules out in its docstring: ``P17``.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent

#: limits, waits, the wire, structured output, counting, batches, crashes, money, comparisons
KNOWN = {
    *(1, 3, 5, 7, 8, 10, 12, 14),
    *(15, 17, 19, 20, 22, 24, 26),
    *(28, 30, 32, 34, 36, 38, 40, 42),
    *(43, 45, 47, 49, 51, 53, 55),
    *(57, 59, 61, 63),
    *(64, 66, 68, 70, 72),
    *(74, 76, 78, 80, 82, 84, 86, 88, 90),
    91,
    *(93, 95, 97, 99),
}
#: What is not there cannot fail: take a number out when its feature is built.
WAITING = {
    61: "compressing conversations",
    64: "batches of the service's own",
    66: "batches of the service's own",
    68: "batches of the service's own",
    70: "batches of the service's own",
    72: "batches of the service's own",
    88: "traces",
}


def named() -> dict[int, list[str]]:
    """Return the tests of each failure that some test names."""
    found: dict[int, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for number in re.findall(r"\bP(\d\d)\b", ast.get_docstring(node) or ""):
                    found[int(number)].append(node.name)
    return found


def test_each_known_failure_has_a_test_or_waits_for_its_feature():
    assert len(KNOWN) == 53
    assert set(named()) - KNOWN == set(), "no such failure is known"
    assert KNOWN - set(named()) - set(WAITING) == set(), "these have no test"


def test_none_waits_that_has_its_tests():
    assert sorted(number for number in WAITING if named()[number]) == []
