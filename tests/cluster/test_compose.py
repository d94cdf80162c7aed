"""The files in ``docker/``: valid, without default secrets, and what ``make cluster`` runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.cluster.__main__ import SERVING, SMALL, WORKING
from tests.cluster.compose import FILE, Compose, Loopback, interpolated
from tests.cluster.stack import HASTE, MARK, OWN_PORTS, SECRETS, Cluster

FOLDER = FILE.parent
SCHEMA = Path(__file__).parent / "compose-spec.json"
#: Services that ``make cluster`` starts in ways of its own, and those that only look on.
STORES, ONLOOKERS = {"postgres", "redis"}, {"statsd-exporter", "prometheus"}

_GIVEN = {**{name: f"{name.lower()}0" for name in SECRETS}, "FERNET_KEY": "f", **SMALL.variables()}


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    """Return the Compose file as it stands."""
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    """Return a cluster whose services are not started."""
    ports = {"postgres": 1, "redis": 2, "api-server": 3, "simulator": 4, "second-simulator": 5}
    loopback = Loopback(tmp_path, lambda host, number: ports.get(host, number))
    compose = Compose({**_GIVEN, "BASE_URL": "http://127.0.0.1:3"})
    return Cluster(
        tmp_path,
        "http://127.0.0.1:3",
        None,
        [],
        Path(sys.executable),
        compose,
        loopback,
        {**HASTE, "MORE": "1"},
    )


def test_the_compose_file_satisfies_the_specifications_schema(content):
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator(schema).validate(content)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**content, "services": {"redis": {"imagine": "redis"}}}, schema)


def test_the_dockerfile_has_no_finding():
    program = Path(sys.executable).with_name("hadolint")
    if not program.exists() and shutil.which("hadolint") is None:
        pytest.skip("there is no hadolint for this kind of machine")
    command = [str(program) if program.exists() else "hadolint", "--no-color", str(FOLDER / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_containers_do_not_run_as_root_and_what_they_copy_is_let_in():
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users
    assert not {"0", "root", "0:0"} & set(users)
    let_in = {
        line[1:] for line in (FOLDER / "Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"
    }
    copied = {
        word
        for line in lines
        if line.startswith("COPY ")
        for word in line.split()[1:-1]
        if not word.startswith("--")
    }
    assert copied == let_in
    assert all((FOLDER.parent / name).exists() for name in copied)


def test_no_secret_has_a_default_and_the_example_names_each_without_a_value():
    text = FILE.read_text().replace("$$", "")
    demanded = set(re.findall(r"\$\{(\w+):\?", text))
    settled = set(re.findall(r"\$\{(\w+):-", text))
    assert set(re.findall(r"\$\{(\w+)", text)) == demanded | settled
    example = (FOLDER / ".env.example").read_text()
    assert set(re.findall(r"^(\w+)=$", example, re.MULTILINE)) == demanded
    assert not re.findall(r"^\w+=.+$", example, re.MULTILINE)
    assert not [name for name in settled if re.search("KEY|SECRET|PASSWORD|TOKEN|CONN", name)]
    for name in demanded:
        with pytest.raises(KeyError, match=name):
            _ = Compose({other: "x" for other in demanded - {name}}).services


def test_every_service_names_a_version_and_says_how_it_is(content):
    for name, service in content["services"].items():
        tag = service["image"].partition(":")[2]
        assert tag[:1] == "v" or tag[:1].isdigit(), name
        assert "healthcheck" in service or name == "init"
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in content["volumes"] or (FOLDER / source).is_file(), volume


def test_redis_keeps_what_it_is_given(content):
    command = content["services"]["redis"]["command"]
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command


def test_make_cluster_runs_every_service_of_the_file(content):
    assert {"init", *SERVING, *WORKING} | STORES | ONLOOKERS == set(content["services"])


def test_a_process_has_the_environment_of_its_container_moved_to_loopback(cluster):
    own = {*OWN_PORTS, *HASTE, "MORE", MARK, "HOME", "LANG", "PATH", "AIRFLOW_HOME"}
    own |= {"AIRFLOW__API__HOST", "AIRFLOW__API__PORT"}
    moved = {
        "@redis:6379": "@127.0.0.1:2",
        "@postgres:5432": "@127.0.0.1:1",
        "//api-server:8080": "//127.0.0.1:3",
        "//simulator:8089": "//127.0.0.1:4",
        "/opt/airflow": str(cluster.home),
    }
    for name in ("init", "api-server", *WORKING):
        told = dict(cluster.compose.services[name].environment)
        assert told.pop("AIRFLOW__METRICS__STATSD_HOST") == "statsd-exporter"
        for here, there in moved.items():
            told = {key: value.replace(here, there) for key, value in told.items()}
        given = cluster.of(cluster.compose.services[name])
        assert given.pop("AIRFLOW__METRICS__STATSD_HOST") == "127.0.0.1"
        assert {key: value for key, value in given.items() if key not in own} == told


def test_a_process_has_the_command_of_its_container(cluster):
    services, command = cluster.compose.services, cluster.loopback.command
    assert command(services["io-worker"]) == ["celery", "worker", "--queues", "io"]
    assert services["io-worker"].replicas == 2
    simulator = command(services["second-simulator"])
    assert simulator[:6] == [
        "python",
        "-m",
        "airflow_provider_llmbatch.simulator",
        "--host",
        "127.0.0.1",
        "--port",
    ]
    assert simulator[6] == "5"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("${A}", "1"),
        ("${A:-2}${B:-2}", "12"),
        ("${A:?say it}", "1"),
        ("$${A}", "${A}"),
        ("a $5", "a $5"),
        ("${EMPTY:-3}", "3"),
    ],
)
def test_variables_mean_what_the_specification_says(text, meant):
    assert interpolated(text, {"A": "1", "EMPTY": ""}) == meant
