"""
How much of the advice, the parsers and the laws of salvage the tests hold: each is broken once, in memory.

``python -m tests.mutation [module …]`` prints what no test has caught, and the share that was. What cannot be
told from the whole stands in ``equivalent.py``, with the reason; it fails for everything else.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.mutants import mutants

ROOT = Path(__file__).parents[2]
ENGINE = "airflow_provider_llmbatch.engine"
DISPATCH, VALIDATE = "tests/engine/dispatch", "tests/engine/validate"
TESTS = {
    "dispatch.advise": (
        f"{DISPATCH}/test_advise.py",
        f"{DISPATCH}/test_advise_replies.py",
        f"{DISPATCH}/test_dialects.py",
        "tests/engine/test_response_format.py::test_every_spelling_of_a_refused_form_is_final",
        "tests/engine/test_response_format.py::test_other_parameters_and_other_failures_go_their_ways",
    ),
    "dispatch.waits": (f"{DISPATCH}/test_waits.py",),
    "dispatch.inflate": (f"{DISPATCH}/test_inflate.py",),
    "dispatch.limit.headers": (f"{DISPATCH}/test_headers.py",),
    "dispatch.wire.chat": (
        f"{DISPATCH}/test_wire_errors.py",
        f"{DISPATCH}/test_dialects.py",
        f"{DISPATCH}/test_chat.py",
    ),
    "dispatch.wire.errors": (
        f"{DISPATCH}/test_wire_errors.py",
        f"{DISPATCH}/test_dialects.py",
        f"{DISPATCH}/test_chat.py",
    ),
    "validate.salvage": (f"{VALIDATE}/test_salvage.py", f"{VALIDATE}/test_salvage_laws.py"),
}
#: What every test imports and no mutant changes; loaded once, before the first of them.
SHARED = ("aiohttp", "httpx", "httpx_aiohttp", "hypothesis.strategies", "jsonschema", "pydantic", "tiktoken")
#: Seconds after which a mutant counts as caught: it does not end.
TIMEOUT_S = 60.0


def main(modules: list[str]) -> int:
    """Break the modules, all of them unless some are named; returns 0 when everything was caught."""
    for name in SHARED:
        import_module(name)
    # One case that fails is enough; the smallest one is for people.
    settings.register_profile(
        "mutated", deadline=None, database=None, phases=[Phase.explicit, Phase.generate]
    )
    caught = tried = 0
    for name in modules or TESTS:
        path = f"{ENGINE}.{name}".replace(".", "/") + ".py"
        source = (ROOT / path).read_text(encoding="utf-8")
        assert not _is_caught(name, path, source), f"the tests of {name} fail as it stands"
        same, found = EQUIVALENT.get(name, {}), list(mutants(source))
        assert set(same) <= {told for _, told, _ in found}, f"equivalent.py names what {name} does not have"
        broken = [one for one in found if one[1] not in same]
        survivors = 0
        for line, told, mutant in broken:
            if not _is_caught(name, path, mutant):
                survivors += 1
                print(f"  {path}:{line}: {told}", flush=True)
        print(f"{name}: {len(broken) - survivors} of {len(broken)} caught", flush=True)
        tried += len(broken)
        caught += len(broken) - survivors
    print(f"mutate: {caught} of {tried} caught, {100 * caught / tried:.1f} %")
    return int(caught < tried)


def _is_caught(name: str, path: str, source: str) -> bool:
    """Run the tests of a module in a child of this process, with another text in the module's place."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = _run(name, path, source)
        finally:
            os._exit(status)
    until = time.monotonic() + TIMEOUT_S
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return True
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1]) != 0


def _run(name: str, path: str, source: str) -> int:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.dup2(nowhere, sys.stderr.fileno())
    full = f"{ENGINE}.{name}"
    spec = spec_from_file_location(full, ROOT / path)
    assert spec is not None
    module = sys.modules[full] = module_from_spec(spec)
    exec(compile(source, path, "exec"), module.__dict__)
    parent, _, last = full.rpartition(".")
    setattr(import_module(parent), last, module)
    # What is loaded already cannot be rewritten any more, which is as well.
    quiet = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    few = ["--disable-plugin-autoload", "-p", "_hypothesis_pytestplugin", "-p", "pytest_asyncio.plugin"]
    return int(pytest.main([*quiet, *few, "--hypothesis-profile=mutated", *TESTS[name]]))


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
