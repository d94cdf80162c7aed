"""Which module may import what, read from the syntax trees and proven in fresh interpreters."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "airflow_provider_llmbatch"
FILES = sorted((ROOT / PACKAGE).rglob("*.py"))

#: The packages of the engine are its steps, but for these, which every step may use: what a connection says,
#: the contract of the shared state, and the events.
SHARED = ("connection", "state.protocols", "state.claims", "observe")
#: Where a library may be imported at all.
HOMES = {
    "aiohttp": ("engine.dispatch.call", "simulator"),
    "apprise": ("notifications",),
    "genai_prices": ("engine.tokens",),
    "httpx": ("engine.dispatch", "hooks.probe", "simulator"),
    "httpx_aiohttp": ("engine.dispatch.call",),
    "jsonschema": ("engine.validate", "simulator"),
    "numpy": ("engine.fusion", "engine.rollout", "simulator"),
    "openslide": ("engine.fusion",),
    "pyarrow": ("engine.fusion.records", "engine.report", "engine.sink", "engine.source"),
    "pydicom": ("engine.fusion", "simulator"),
    "redis": ("engine.state.redis",),
    "sqlite3": ("engine.identity", "engine.state.sqlite"),
    "safetensors": ("engine.fusion", "engine.rollout"),
    "sacrebleu": ("engine.rollout",),
    "scipy": ("engine.rollout",),
    "sklearn": ("engine.fusion",),
    "statsd": ("engine.observe",),
    "tiktoken": ("engine.tokens", "simulator"),
    "tokenizers": ("engine.fusion", "engine.rollout"),
    "torch": ("engine.fusion",),
    "torch_pruning": ("engine.fusion.prune",),
}
#: From the outer ring to the inner one; imports go inwards, each ring may use itself and all further in.
RINGS = (
    ("plugins", "cli"),
    ("operators", "sensors", "notifications"),
    ("triggers",),
    ("hooks",),
    ("engine",),
)
AIRFLOW_SURFACE = ("airflow.sdk", "airflow.triggers.base", "airflow.plugins_manager", "airflow.providers")
#: Most lines of a file, and of a function without its docstring.
FILE_LINES, FUNCTION_LINES = 350, 40
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager", "managers"}
IMPURE_CALLS = ("time.", "random.", "uuid.", "datetime.now", "datetime.utcnow", "datetime.today", "secrets.")


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
    return ".".join(p for p in parts if p != "__init__")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything a file imports, wherever it does."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def is_in(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def broken(rule) -> list[str]:
    """Return the imports for which ``rule(importer, imported)`` is false."""
    return [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for path in FILES
        for line, imported in imports(path)
        if not rule(name_of(path), imported)
    ]


def test_errors_and_nouns_import_the_standard_library_only():
    pure = ("errors", "engine.items")
    assert not broken(
        lambda importer, imported: importer not in pure or imported.split(".")[0] in sys.stdlib_module_names
    )


def test_the_engine_knows_nothing_of_airflow():
    def rule(importer: str, imported: str) -> bool:
        if not importer.startswith("engine"):
            return True
        ours = is_in(imported, (f"{PACKAGE}.engine", f"{PACKAGE}.errors", f"{PACKAGE}.__version__"))
        return ours if is_in(imported, (PACKAGE,)) else not is_in(imported, ("airflow",))

    assert not broken(rule)


def test_steps_of_the_engine_do_not_import_each_other():
    """They meet in modules right under ``engine/``; of these, the ones that join steps are out of reach."""
    engine = ROOT / PACKAGE / "engine"
    steps = tuple(f"{PACKAGE}.engine.{path.name}" for path in engine.iterdir() if path.is_dir())
    shared = tuple(f"{PACKAGE}.engine.{name}" for name in SHARED)
    joiners = tuple(
        f"{PACKAGE}.{name_of(path)}"
        for path in engine.glob("*.py")
        if any(is_in(imported, steps) and not is_in(imported, shared) for _, imported in imports(path))
    )

    def rule(importer: str, imported: str) -> bool:
        mine = next((step for step in steps if is_in(f"{PACKAGE}.{importer}", (step,))), None)
        if mine is None or is_in(imported, (mine, *shared)):
            return True
        return not is_in(imported, (*steps, *joiners))

    assert not broken(rule)


def test_imports_go_from_the_outer_ring_to_the_inner_one():
    depth = {name: number for number, ring in enumerate(RINGS) for name in ring}

    def rule(importer: str, imported: str) -> bool:
        mine, other = importer.split(".")[0], imported.removeprefix(f"{PACKAGE}.").split(".")[0]
        if not {mine, other} <= depth.keys() or not is_in(imported, (PACKAGE,)):
            return True
        return depth[mine] <= depth[other]

    assert not broken(rule)


def test_the_simulator_is_imported_by_nothing_else():
    assert not broken(
        lambda importer, imported: importer.startswith("simulator") or f"{PACKAGE}.simulator" not in imported
    )


def test_every_library_has_its_home():
    assert not broken(
        lambda importer, imported: is_in(importer, HOMES.get(imported.split(".")[0], ("", importer)))
    )


def test_airflow_is_met_at_its_public_surface():
    def rule(importer: str, imported: str) -> bool:
        allowed = AIRFLOW_SURFACE
        if importer == "compat":
            allowed += ("airflow.__version__",)
        if importer.startswith("plugins."):
            allowed += ("airflow.api_fastapi", "airflow.models")
        if importer.startswith("cli."):
            allowed += ("airflow.cli.cli_config", "airflow.models", "airflow.utils.session")
        return not is_in(imported, ("airflow",)) or (
            is_in(imported, allowed) and "._" not in imported.removesuffix(".__version__")
        )

    assert not broken(rule)


def test_operators_and_sensors_do_no_work_of_the_engine():
    work = ("csv", "fsspec", "http", "sqlite3", "urllib.request")
    assert not broken(
        lambda importer, imported: not is_in(importer, ("operators", "sensors")) or not is_in(imported, work)
    )


def test_clocks_randomness_and_ids_are_handed_to_the_engine():
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno} calls {ast.unparse(node.func)}"
        for path in FILES
        if name_of(path).startswith("engine")
        for node in set(ast.walk(tree(path))) - set(in_defaults(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(IMPURE_CALLS)
    ]
    assert not calls


def in_defaults(path: Path) -> Iterator[ast.AST]:
    """Yield what stands in default values of parameters."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.arguments):
            for default in (*node.defaults, *filter(None, node.kw_defaults)):
                yield from ast.walk(default)


def test_modules_are_named_for_what_they_hold():
    assert not [path for path in FILES if FORBIDDEN_NAMES & set(name_of(path).split("."))]


def test_files_and_functions_stay_small():
    long = [
        f"{p.relative_to(ROOT)} has {n} lines" for p in FILES if (n := len(p.read_text().splitlines())) > 350
    ]
    for path in FILES:
        for node in ast.walk(tree(path)):
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and lines_of_code(node) > FUNCTION_LINES
            ):
                long.append(
                    f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {lines_of_code(node)} lines"
                )
    assert not long


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function's body, its docstring left out."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0  # type: ignore[operator]


def loaded_after(code: str) -> set[str]:
    """Run code in a fresh interpreter and return the names of the loaded top-level packages."""
    report = "import json, sys; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def importing(names: list[str]) -> str:
    return "\n".join(f"import {PACKAGE}.{name}" for name in names)


def test_the_whole_engine_can_be_imported_without_airflow():
    engine = [name_of(p) for p in FILES if name_of(p).startswith("engine") and "fusion" not in name_of(p)]
    engine = [name for name in engine if name != "engine.source.parquet"]
    assert "airflow" not in loaded_after(importing(engine))


@pytest.mark.slow
def test_parsing_a_dag_loads_no_heavy_library():
    rings = ("hooks", "notifications", "operators", "sensors", "triggers")
    rings += ("plugins.llmbatch", "provider_info", "settings")
    parsed = [name for p in FILES if is_in(name := name_of(p), rings) and name != "hooks.probe"]
    airflow = "import airflow.sdk, airflow.triggers.base, airflow.plugins_manager\n"
    ours = loaded_after(airflow + importing(parsed)) - loaded_after(airflow)
    assert ours & set(HOMES) == set()
