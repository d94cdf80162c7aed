"""The Common Expression Language, without the command line that its package brings along."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any


@cache
def cel() -> Any:
    """
    Return what compiles expressions.

    The package ``cel`` imports its command line as well, and with it a tenth of a second and more: too much
    for a DAG file that is read every few seconds. So its compiled part is loaded alone, under the name that
    the package gives it, and shared with whoever imports the package.
    """
    name = "cel.cel"
    if name not in sys.modules:
        package = find_spec("cel")
        locations = package.submodule_search_locations if package else None
        spec = PathFinder.find_spec("cel", list(locations or ()))
        if spec is None or spec.loader is None or spec.origin == (package and package.origin):
            return importlib.import_module("cel")
        spec.name = name
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
