"""
From an operator's arguments to the engine's values.

Templates turn numbers into texts, so every number is read here, with an error that names the argument.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_llmbatch.errors import ConfigurationError, InputError
from airflow_provider_llmbatch.operators.places import task_folder

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.items import RunRef
    from airflow_provider_llmbatch.engine.prompt import Prompt
    from airflow_provider_llmbatch.engine.summary import Manifest
    from airflow_provider_llmbatch.settings import Settings

#: What a template gives for an argument that is not set.
_NOTHING = ("", "None", "null")


def whole_number(name: str, value: Any, *, least: int = 1) -> int:
    """
    Read a whole number.

    :raises ConfigurationError: when it is none, or below ``least``.
    """
    try:
        if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
            raise ValueError
        number = int(value)
    except (TypeError, ValueError):
        number = least - 1
    if number < least:
        raise ConfigurationError(f"{name} is {value!r}; give a whole number from {least}.")
    return number


def optional_whole_number(name: str, value: Any, *, least: int = 1) -> int | None:
    """Read a whole number that may be left out."""
    return None if _is_nothing(value) else whole_number(name, value, least=least)


def share(name: str, value: Any) -> float:
    """
    Read a share from 0 to 1.

    :raises ConfigurationError: when it is none.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0.0 <= number <= 1.0:
        raise ConfigurationError(f"{name} is {value!r}; give a number from 0 to 1, such as 0.1 for 10 %.")
    return number


def seconds(name: str, value: Any) -> float:
    """
    Read a positive number of seconds.

    :raises ConfigurationError: when it is none.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0.0 < number < float("inf"):
        raise ConfigurationError(f"{name} is {value!r}; give a number of seconds above 0.")
    return number


def dollars(name: str, value: Any) -> Decimal | None:
    """
    Read an amount of US dollars that may be left out.

    :raises ConfigurationError: when it is no positive amount.
    """
    if _is_nothing(value):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        amount = Decimal(0)
    if not amount.is_finite() or amount <= 0:
        raise ConfigurationError(
            f"{name} is {value!r}; give US dollars above 0, such as 2.50, or leave it out."
        )
    return amount


def yes_or_no(name: str, value: Any) -> bool:
    """
    Read a yes or no, also as a template writes it.

    :raises ConfigurationError: when it is neither.
    """
    word = str(value).strip().lower()
    if word not in ("true", "false", "none", ""):
        raise ConfigurationError(f"{name} is {value!r}; set it to True or False.")
    return word == "true"


def optional_text(value: Any) -> str | None:
    """Read a text that may be left out."""
    return None if _is_nothing(value) else str(value)


def rows_or_path(value: Any) -> str | Sequence[Mapping[str, Any]] | None:
    """
    Read a source: a path or URL, or rows; None when it is left out.

    :raises ConfigurationError: when it is neither.
    """
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, str) or value is None:
        return optional_text(value)
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise ConfigurationError(
            f"source is {type(value).__name__} {str(value)[:60]}; give a path or URL, or a list of rows."
        )
    rows: Sequence[Mapping[str, Any]] = value
    return rows or None


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """
    Read a JSON object, as such or as a template has written it.

    :raises ConfigurationError: when it is none.
    """
    if _is_nothing(value):
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{name} is no mapping; give an object such as {{'temperature': 0}}.")
    return value


def choice(name: str, value: Any, choices: Sequence[str]) -> Any:
    """
    Read one of a few words.

    :raises ConfigurationError: when it is none of them.
    """
    if value not in choices:
        raise ConfigurationError(f"{name} is {value!r}; set it to one of {', '.join(choices)}.")
    return value


def run_ref(context: Context) -> RunRef:
    """Return where results are made."""
    from airflow_provider_llmbatch.engine.items import RunRef

    instance = context["ti"]
    return RunRef(
        dag=instance.dag_id,
        run=instance.run_id,
        task=instance.task_id,
        map_index=-1 if instance.map_index is None else instance.map_index,
        try_number=instance.try_number,
    )


def occasion(context: Context) -> str:
    """Return what a task instance keeps over its retries, and no longer has once somebody clears it."""
    ref = run_ref(context)
    # Clearing raises max_tries above the tries so far.
    return "/".join([ref.dag, ref.run, ref.task, str(ref.map_index), str(context["ti"].max_tries)])


def usual_priority(context: Context) -> str:
    """Return the priority of a task that names none: runs of a backfill make room for all others."""
    run = context.get("dag_run")
    return "low" if run is not None and run.run_type == "backfill" else "normal"


def dag_folder(context: Context) -> Path:
    """Return the folder of the DAG file, wherever this worker has put its bundle."""
    dag = context.get("dag")
    location = getattr(dag, "fileloc", None)
    return Path(location).resolve().parent if location else Path.cwd()


def prompt_of(value: Any, context: Context, settings: Settings) -> Prompt:
    """
    Find a prompt: ``name@version`` beside the DAG file or under ``prompts_path``, or one written out.

    :param value: the name, or a mapping with ``system`` and optionally ``user``.
    :raises ConfigurationError: for anything else.
    :raises InputError: when there is no such prompt.
    """
    from airflow_provider_llmbatch.engine.prompt import inline_prompt, load_prompt

    if isinstance(value, Mapping) and "system" in value and set(value) <= {"system", "user"}:
        return inline_prompt(str(value["system"]), value.get("user"))
    if not isinstance(value, str) or not value:
        raise ConfigurationError(
            f"prompt is {type(value).__name__} {str(value)[:60]}; give 'name@version', or a mapping with "
            "'system' and optionally 'user'."
        )
    return load_prompt(value, prompt_folders(context, settings))


def prompt_folders(context: Context, settings: Settings) -> list[Path]:
    """Return where prompts are looked for: beside the DAG file, then under ``prompts_path``."""
    own = dag_folder(context) / "prompts"
    return [own] if settings.prompts_path is None else [own, settings.prompts_path]


def source_location(value: str | os.PathLike[str], context: Context) -> str:
    """Return a path as it is, relative ones seen from the DAG file's folder."""
    text = os.fspath(value)
    if "://" in text or os.path.isabs(text):
        return text
    return str(dag_folder(context) / text)


def own_folder(context: Context, settings: Settings, *, apart: bool) -> str:
    """
    Return the folder of this task in this run, below ``results_path``.

    :param apart: whether each mapped instance needs a folder of its own.
    """
    ref = run_ref(context)
    return task_folder(settings.results_path, ref.dag, ref.run, ref.task, ref.map_index if apart else -1)


def result_location(value: str | None, context: Context, settings: Settings, *, apart: bool) -> str:
    """
    Return where results go: as given, or the folder of this task in this run.

    :param apart: whether each mapped instance needs a folder of its own.
    :raises ConfigurationError: for a relative path.
    """
    place = optional_text(value)
    return own_folder(context, settings, apart=apart) if place is None else absolute("result_path", place)


def absolute(name: str, place: str) -> str:
    """
    Read a path or a URL.

    :raises ConfigurationError: for a relative path.
    """
    if "://" not in place and not os.path.isabs(place):
        # Workers have other working directories than the one that read the DAG.
        raise ConfigurationError(
            f"{name} is {place!r}, a relative path; give an absolute path or a URL, or leave it out."
        )
    return place


def manifests_of(name: str, value: Any) -> list[Manifest]:
    """
    Read what dispatch tasks return: one manifest, or those of all mapped instances.

    :raises InputError: when it is something else.
    """
    from airflow_provider_llmbatch.engine.summary import Manifest

    given = [value] if isinstance(value, Mapping) else value
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InputError(
            f"{name} is {type(given).__name__}; give what dispatch tasks return: dispatch.output."
        )
    # One slice is one request for all mapped instances; one by one they would be asked for in turn.
    return [Manifest.from_json(one) for one in given[:]]


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value in _NOTHING)
