"""A real Postgres server for a while, or a database of its own on one that is given."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tests.dags.installation import until

#: Set to use a server that is there: postgresql://user:password@host:port/database, with CREATEDB.
GIVEN = "LLMBATCH_TEST_POSTGRES_URL"
#: Who runs the server when we are root, which it refuses to be.
_ACCOUNT = "postgres"


def binaries() -> Path:
    """Return the folder of ``initdb`` and ``postgres``; Debian keeps them off PATH."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if not versions:
        raise RuntimeError(f"There is no Postgres here; install the package postgresql, or set {GIVEN}.")
    return versions[-1]


@contextlib.contextmanager
def database(port: int, user: str, password: str, name: str) -> Iterator[str]:
    """Yield the URL of an empty database, which is gone afterwards."""
    if given := os.environ.get(GIVEN):
        with _database_at(given) as url:
            yield url
        return
    with tempfile.TemporaryDirectory(prefix="llmbatch-postgres-") as folder, _server(Path(folder), port):
        admin = f"postgresql://{_owner()}@127.0.0.1:{port}/postgres"
        _sql(admin, f"CREATE ROLE {user} LOGIN PASSWORD '{password}'")
        _sql(admin, f"CREATE DATABASE {name} OWNER {user}")
        yield f"postgresql://{user}:{password}@127.0.0.1:{port}/{name}"


@contextlib.contextmanager
def _server(folder: Path, port: int) -> Iterator[None]:
    owner, data = _owner(), folder / "data"
    if os.geteuid() == 0:
        shutil.chown(folder, owner)
    made = [str(binaries() / "initdb"), "--pgdata", str(data), "--auth", "trust", "--no-sync"]
    subprocess.run(made, check=True, capture_output=True, cwd=folder, **_as(owner))
    command = [str(binaries() / "postgres"), "-D", str(data), "-p", str(port), "-k", str(folder)]
    command += ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=200"]
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **_as(owner))
    try:
        ready = [str(binaries() / "pg_isready"), "--host", "127.0.0.1", "--port", str(port)]
        until(lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0, "Postgres")
        yield
    finally:
        # At once, whoever is still connected.
        server.send_signal(signal.SIGQUIT)
        server.wait()


@contextlib.contextmanager
def _database_at(url: str) -> Iterator[str]:
    name = f"llmbatch_{uuid.uuid4().hex[:12]}"
    _sql(url, f"CREATE DATABASE {name}")
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        _sql(url, f"DROP DATABASE {name} WITH (FORCE)")


def _sql(url: str, statement: str) -> None:
    command = ["psql", "--quiet", "--no-psqlrc", "--dbname", url, "--command", statement]
    subprocess.run(command, check=True, capture_output=True)


def _owner() -> str:
    return _ACCOUNT if os.geteuid() == 0 else getpass.getuser()


def _as(owner: str) -> dict[str, str]:
    return {"user": owner, "group": owner} if os.geteuid() == 0 else {}
