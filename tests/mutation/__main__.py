"""
How much of the advice, the parsers and the laws of salvage the tests hold: each is broken once, in a copy.

``python -m tests.mutation [module …]`` prints what no test has caught, and the share that was.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutation.mutants import mutants

ROOT = Path(__file__).parents[2]
ENGINE = "airflow_provider_llmbatch/engine"
DISPATCH, VALIDATE = "tests/engine/dispatch", "tests/engine/validate"
TESTS = {
    "dispatch/advise": (
        f"{DISPATCH}/test_advise.py",
        f"{DISPATCH}/test_dialects.py",
        "tests/engine/test_response_format.py",
    ),
    "dispatch/waits": (f"{DISPATCH}/test_waits.py",),
    "dispatch/inflate": (f"{DISPATCH}/test_inflate.py",),
    "dispatch/wire/chat": (f"{DISPATCH}/test_chat.py", f"{DISPATCH}/test_dialects.py"),
    "dispatch/wire/errors": (
        f"{DISPATCH}/test_chat.py",
        f"{DISPATCH}/test_dialects.py",
        f"{DISPATCH}/test_decoder_fuzz.py",
    ),
    "validate/salvage": (f"{VALIDATE}/test_salvage.py", f"{VALIDATE}/test_salvage_laws.py"),
}
#: Seconds after which a mutant counts as caught: it does not end.
TIMEOUT_S = 60.0
AT_ONCE = 2


def main(modules: list[str]) -> int:
    """Break the modules, all of them unless some are named; returns 0 when everything was caught."""
    caught = tried = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name in modules or TESTS:
            path = f"{ENGINE}/{name}.py"
            broken = list(mutants((ROOT / path).read_text(encoding="utf-8")))
            survivors = 0
            for (line, told, _), was_caught in zip(
                broken, pool.map(lambda one, n=name: _is_caught(n, one[2]), broken), strict=True
            ):
                if not was_caught:
                    survivors += 1
                    print(f"  {path}:{line}: {told}", flush=True)
            print(f"{name}: {len(broken) - survivors} of {len(broken)} caught", flush=True)
            tried += len(broken)
            caught += len(broken) - survivors
    print(f"mutate: {caught} of {tried} caught, {100 * caught / tried:.1f} %")
    return int(caught < tried)


def _is_caught(name: str, module: str) -> bool:
    with _Copy() as place:
        (place / f"{ENGINE}/{name}.py").write_text(module, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *TESTS[name]]
        try:
            done = subprocess.run(command, cwd=place, capture_output=True, check=False, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return True
        return done.returncode != 0


class _Copy:
    """A copy of what the tests need."""

    def __enter__(self) -> Path:
        self._place = Path(tempfile.mkdtemp(prefix="mutant-"))
        for part in ("airflow_provider_llmbatch", "tests"):
            ignored = shutil.ignore_patterns("__pycache__", "fusion", "*.tiktoken", "data")
            shutil.copytree(ROOT / part, self._place / part, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", self._place)
        return self._place

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
