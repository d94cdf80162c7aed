"""
``docker/compose.yaml`` as plain processes on loopback see it.

A container reaches ``redis:6379``; here the same server is at ``127.0.0.1`` and a port of its own, and what
the containers have below ``/opt/airflow`` lies in a folder. Everything else is taken as it stands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parents[2] / "docker" / "compose.yaml"
#: Where the official image keeps everything.
HOME = "/opt/airflow"

_VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?::(?P<kind>[?-])(?P<rest>[^}]*))?\}")
#: A service's address, or a command's argument that names an address to listen on.
_ADDRESS = re.compile(r"\b(?P<host>[a-z][a-z-]*):(?P<port>\d{4,5})\b")
_ANY_HOST = "0.0.0.0"


@dataclass(frozen=True)
class Service:
    """What the file says about a service, without variables."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    replicas: int


@dataclass(frozen=True)
class Compose:
    """
    The services of the file.

    :param variables: take the place of ``${NAME}``.
    """

    variables: Mapping[str, str]

    @cached_property
    def services(self) -> dict[str, Service]:
        """All services, those of profiles included."""
        content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
        return {name: self._service(name, told) for name, told in content["services"].items()}

    def _service(self, name: str, told: Mapping[str, Any]) -> Service:
        command = interpolated(told.get("command", ""), self.variables)
        environment = told.get("environment", {})
        return Service(
            name=name,
            command=tuple(shlex.split(command)),
            environment={key: interpolated(str(value), self.variables) for key, value in environment.items()},
            replicas=told.get("deploy", {}).get("replicas", 1),
        )


def interpolated(text: str, variables: Mapping[str, str]) -> str:
    """
    Put variables into a text as the Compose specification says.

    :raises KeyError: for a variable that is missing, with what the file says about it.
    """

    def value(found: re.Match[str]) -> str:
        if found["name"] is None:
            return "$"
        if given := variables.get(found["name"]):
            return given
        if found["kind"] == "-":
            return str(found["rest"])
        raise KeyError(f"{found['name']}: {found['rest'] or 'is not set'}")

    return _VARIABLE.sub(value, text)


@dataclass(frozen=True)
class Loopback:
    """
    Where on this machine things are.

    :param home: stands for the folder of the image.
    :param port: returns the port on loopback of a service's port.
    """

    home: Path
    port: Callable[[str, int], int]

    def text(self, text: str) -> str:
        """Return a text with the addresses and paths of this machine."""
        moved = _ADDRESS.sub(lambda at: f"127.0.0.1:{self.port(at['host'], int(at['port']))}", text)
        return moved.replace(HOME, str(self.home))

    def command(self, service: Service) -> list[str]:
        """Return a service's command; the port that it listens on is one of this machine."""
        words = [self.text(word) for word in service.command]
        words = ["127.0.0.1" if word == _ANY_HOST else word for word in words]
        for option, (place, word) in zip(words, enumerate(words[1:], start=1), strict=False):
            if option == "--port":
                words[place] = str(self.port(service.name, int(word)))
        return words

    def environment(self, service: Service) -> dict[str, str]:
        """Return a service's environment; where host and port stand apart, both are moved."""
        moved = {name: self.text(value) for name, value in service.environment.items()}
        for name, host in service.environment.items():
            port = f"{name.removesuffix('_HOST')}_PORT"
            if name.endswith("_HOST") and port in moved:
                moved |= {name: "127.0.0.1", port: str(self.port(host, int(moved[port])))}
        return moved
