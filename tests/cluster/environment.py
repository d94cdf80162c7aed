"""The package as a cluster gets it: a wheel, in an environment that knows nothing of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints" / "cluster.txt"

#: What must be there, and the Debian package that brings it.
PROGRAMS = {"redis-server": "redis-server", "psql": "postgresql"}


def install(folder: Path) -> Path:
    """
    Build the wheel, install it with what a cluster needs, and return the environment's Python.

    :param folder: holds the wheel and the environment; what is there from before is used again.
    """
    shutil.rmtree(folder / "dist", ignore_errors=True)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist")]
    _run(*build, str(ROOT))
    (wheel,) = (folder / "dist").glob("*.whl")
    python = folder / "venv" / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    if uv.exists():
        _run(str(uv), "venv", "--allow-existing", "--python", sys.executable, str(folder / "venv"))
        pip = [str(uv), "pip", "install", "--python", str(python)]
    else:
        _run(sys.executable, "-m", "venv", str(folder / "venv"))
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install"]
    _run(*pip, "--constraint", str(CONSTRAINTS), f"airflow-provider-llmbatch[cluster] @ {wheel.as_uri()}")
    # The version may be that of the last time, and the content another one.
    again = "--reinstall" if uv.exists() else "--force-reinstall"
    _run(*pip, "--no-deps", again, str(wheel))
    return python


def need_programs() -> None:
    """
    Install the servers that are missing, where that can be done.

    :raises SystemExit: naming the packages, where it cannot.
    """
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if not missing:
        return
    if os.geteuid() or shutil.which("apt-get") is None:
        raise SystemExit(f"cluster: install {' and '.join(missing)}")
    if "postgresql" in missing:
        # Debian's package would make a server of its own, and start it.
        settings = Path("/etc/postgresql-common/createcluster.conf")
        settings.parent.mkdir(exist_ok=True)
        settings.write_text("create_main_cluster = false\n")
    keep = ["-o", "Dpkg::Options::=--force-confold"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "install", "-qq", "--yes", *keep, *missing], check=True, env=environment)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"cluster: {' '.join(command[:6])} … failed:\n{(done.stdout + done.stderr)[-2000:]}")
