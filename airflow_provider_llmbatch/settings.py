"""The section ``[llmbatch]`` of airflow.cfg; nothing else reads it."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.provider_info import OPTIONS

SECTION = "llmbatch"

_ENCODINGS = ("o200k_base", "cl100k_base")
_REDIS_SCHEMES = tuple(
    f"{scheme}{kind}" for scheme in ("redis", "rediss") for kind in ("", "+cluster", "+sentinel")
)
_STATE_SCHEMES = ("sqlite", *_REDIS_SCHEMES)
_METRIC_PREFIX = re.compile(r"[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*")
_YES = frozenset({"1", "t", "true", "yes", "on"})
_NO = frozenset({"0", "f", "false", "no", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the installation says about every batch."""

    #: directory or fsspec URL, without a slash at the end
    results_path: str
    #: ``sqlite:///`` and an absolute path, or a Redis URL, which can hold a password
    state_url: str = field(repr=False)
    #: connection of type redis that stands in for ``state_url``
    redis_conn_id: str | None
    prompts_path: Path | None
    prices_path: Path | None
    default_encoding: str
    io_queue: str | None
    cpu_queue: str | None
    gpu_queue: str | None
    #: dotted paths of functions that give keys, by name
    token_providers: Mapping[str, str]
    single_host: bool
    shared_filesystem: bool
    #: seconds
    defer_after: float
    max_wait: float
    #: None: metrics go where Airflow's go
    statsd_host: str | None
    statsd_port: int
    statsd_prefix: str | None


def load_settings() -> Settings:
    """
    Read the settings from airflow.cfg and the environment.

    :raises ConfigurationError: naming the option, its value and the remedy.
    """
    from airflow.sdk import conf

    return parse_settings(lambda option: conf.get(SECTION, option, fallback=None), _airflow_home())


def queue_of(option: Literal["io_queue", "cpu_queue", "gpu_queue"]) -> str:
    """
    Return the queue of a kind of tasks: as set, else the one that Airflow gives to all tasks.

    Operators ask for it when their module is imported, so it reads no more than it must.
    """
    from airflow.sdk import conf

    return (conf.get(SECTION, option, fallback=None) or "").strip() or conf.get("operators", "default_queue")


def parse_settings(get: Callable[[str], str | None], airflow_home: str) -> Settings:
    """
    Make settings of texts.

    :param get: returns the text of an option, None or ``""`` when it is not set.
    :param airflow_home: takes the place of ``{AIRFLOW_HOME}`` in defaults.
    :raises ConfigurationError: naming the option, its value and the remedy.
    """

    def text(option: str) -> str | None:
        return (get(option) or "").strip() or None

    def required(option: str) -> str:
        return text(option) or str(OPTIONS[option]["default"]).format(AIRFLOW_HOME=airflow_home)

    defer_after = _seconds("defer_after", required("defer_after"))
    max_wait = _seconds("max_wait", required("max_wait"))
    if max_wait < defer_after:
        raise _refusal(
            "max_wait", f"is {max_wait:g}, less than defer_after ({defer_after:g})", "make it larger"
        )
    return Settings(
        results_path=_results_path(required("results_path")),
        state_url=_state_url(required("state_url")),
        redis_conn_id=text("redis_conn_id"),
        prompts_path=_path("prompts_path", text("prompts_path")),
        prices_path=_path("prices_path", text("prices_path")),
        default_encoding=_choice("default_encoding", required("default_encoding"), _ENCODINGS),
        io_queue=text("io_queue"),
        cpu_queue=text("cpu_queue"),
        gpu_queue=text("gpu_queue"),
        token_providers=_token_providers(text("token_providers") or "{}"),
        single_host=_boolean("single_host", required("single_host")),
        shared_filesystem=_boolean("shared_filesystem", required("shared_filesystem")),
        defer_after=defer_after,
        max_wait=max_wait,
        statsd_host=text("statsd_host"),
        statsd_port=_port("statsd_port", required("statsd_port")),
        statsd_prefix=_metric_prefix("statsd_prefix", text("statsd_prefix")),
    )


def _token_providers(text: str) -> Mapping[str, str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all("." in str(path) for path in found.values()):
        raise _refusal("token_providers", f"is {text[:80]!r}", 'give {"name": "package.module.function"}')
    return found


def _airflow_home() -> str:
    return os.path.expanduser(os.path.expandvars(os.environ.get("AIRFLOW_HOME", "~/airflow")))


def _results_path(value: str) -> str:
    if "://" not in value and not os.path.isabs(value):
        # Workers have other working directories than schedulers.
        raise _refusal("results_path", f"is {value!r}, a relative path", "give an absolute path or a URL")
    return value.rstrip("/") or "/"


def _state_url(value: str) -> str:
    scheme, separator, rest = value.partition("://")
    if not separator or scheme not in _STATE_SCHEMES or not rest.strip("/"):
        shown = f"has the scheme {scheme!r}" if separator else "is no URL"
        raise _refusal(
            "state_url",
            shown,
            "give sqlite:////<path>, or redis://<host>:6379/0 with rediss, +cluster or +sentinel",
        )
    if scheme == "sqlite" and not rest.startswith("//"):
        raise _refusal("state_url", f"is {value!r}, a relative path", "write four slashes: sqlite:////<path>")
    return value


def _path(option: str, value: str | None) -> Path | None:
    if value is not None and not os.path.isabs(value):
        raise _refusal(option, f"is {value!r}, a relative path", "give an absolute path")
    return Path(value) if value else None


def _choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise _refusal(option, f"is {value!r}", f"set it to one of {', '.join(choices)}")
    return value


def _boolean(option: str, value: str) -> bool:
    if (word := value.lower()) not in _YES | _NO:
        raise _refusal(option, f"is {value!r}", "set it to True or False")
    return word in _YES


def _seconds(option: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or seconds <= 0:
        raise _refusal(option, f"is {value!r}", "set it to a number of seconds above 0")
    return seconds


def _port(option: str, value: str) -> int:
    port = int(value) if value.isascii() and value.isdigit() and len(value) < 6 else 0
    if not 0 < port < 65536:
        raise _refusal(option, f"is {value!r}", "set it to a port from 1 to 65535")
    return port


def _metric_prefix(option: str, value: str | None) -> str | None:
    if value is not None and not _METRIC_PREFIX.fullmatch(value):
        raise _refusal(option, f"is {value!r}", "use letters, digits, _ and -, with dots only between them")
    return value


def _refusal(option: str, problem: str, remedy: str) -> ConfigurationError:
    variable = f"AIRFLOW__{SECTION}__{option}".upper()
    return ConfigurationError(f"[{SECTION}] {option} (or {variable}) {problem}; {remedy}.")
