"""The package as a user gets it: built, installed away from the checkout, and seen by Airflow's commands."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "airflow_provider_llmbatch"

COMMANDS = """
import sys
from airflow.__main__ import main
import airflow_provider_llmbatch
print(airflow_provider_llmbatch.__file__)
for command in (
    "version",
    "providers get airflow-provider-llmbatch --full -o yaml",
    "providers hooks -o yaml",
    "providers behaviours -o yaml",
    "providers links -o yaml",
    "plugins -o yaml",
    "config list --section llmbatch --show-values",
    "connections add tried --conn-type llmbatch --conn-host https://llm.example/v1 --conn-password sk-canary",
    "connections get tried -o yaml",
):
    print(f"$ airflow {command}", flush=True)
    sys.argv = ["airflow", *command.split()]
    main()
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel from the checkout."""
    target = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (built,) = target.glob("*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    wanted = {
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == wanted


def test_airflow_shows_the_installed_package_without_a_warning(wheel, tmp_path, airflow_db):
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed), "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout
    assert shown.splitlines()[0] == str(installed / "airflow_provider_llmbatch" / "__init__.py")
    for words in (
        "class: airflow_provider_llmbatch.hooks.llm.LLMBatchHook",
        "field_behaviours: llmbatch",
        "extra_link_class_name: airflow_provider_llmbatch.operators.links.LLMBatchReportLink",
        "url_prefix: /llmbatch",
        f"results_path = {airflow_db.parent}/llmbatch/results",
        "host: https://llm.example/v1",
    ):
        assert words in shown
    warnings = [line for line in (shown + done.stderr).splitlines() if "warning" in line.lower()]
    assert not [line for line in warnings if "llmbatch" in line]
