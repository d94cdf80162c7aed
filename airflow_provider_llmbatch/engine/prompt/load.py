"""Prompt files: ``<name>/<version>.yaml`` under one of the search path's directories."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.identity import canonical_json, fingerprint
from airflow_provider_llmbatch.engine.items import Json, PromptRef
from airflow_provider_llmbatch.engine.prompt.template import syntax_problem
from airflow_provider_llmbatch.errors import InputError

#: Names and versions become parts of paths, so they start with a letter or digit and hold no slash.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SUFFIX = ".yaml"

_TYPES: Mapping[str, tuple[type, str]] = {
    "system": (str, "text"),
    "user": (str, "text"),
    "params": (dict, "a mapping"),
    "output_schema": (dict, "a mapping that is a JSON schema"),
    "notes": (str, "text"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One version of a prompt."""

    ref: PromptRef
    #: template of the system message; empty for none
    system: str = ""
    #: template of the user message; None when items bring their own text or messages
    user: str | None = None
    #: wire parameters that belong to the prompt, such as temperature
    params: Mapping[str, Json] = field(default_factory=dict)
    #: JSON schema of the reply
    output_schema: Mapping[str, Json] | None = None
    #: for people
    notes: str = ""


def load_prompt(name: str, search_path: Sequence[Path]) -> Prompt:
    """
    Read a prompt file.

    :param name: ``name@version``, or ``name`` when there is only one version.
    :param search_path: directories that hold ``<name>/<version>.yaml``; the first that has it wins.
    :raises InputError: when there is no such file, or it is not as it should be.
    """
    label, at, version = name.partition("@")
    for part in (label, version) if at else (label,):
        if not _NAME.fullmatch(part):
            raise InputError(
                f"The prompt {name!r} is no name@version; both parts start with a letter or digit and hold "
                "only letters, digits, '.', '_' and '-'."
            )
    path = _find(label, version, search_path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}; grant this worker read access."
        ) from error
    normalised = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    ref = PromptRef(name=label, version=path.stem, sha=hashlib.sha256(normalised).hexdigest())
    return Prompt(ref=ref, **_checked(path, _parsed(path, normalised)))


def inline_prompt(system: str, user: str | None) -> Prompt:
    """
    Return a prompt that lies in no file; the start of its content's hash is its version.

    :raises InputError: for a template that cannot be read.
    """
    sha = fingerprint("prompt", system, user)
    _check_templates("The inline prompt", {"system": system, "user": user})
    return Prompt(ref=PromptRef(name="inline", version=sha[:8], sha=sha), system=system, user=user)


def versions_of(label: str, search_path: Sequence[Path]) -> dict[str, Path]:
    """Return the versions that there are of a prompt, and their files; the first directory wins."""
    found: dict[str, Path] = {}
    for directory in search_path:
        for path in sorted((Path(directory) / label).glob(f"*{_SUFFIX}")):
            found.setdefault(path.stem, path)
    return found


def _find(label: str, version: str, search_path: Sequence[Path]) -> Path:
    found = versions_of(label, search_path)
    if version in found:
        return found[version]
    if not version and len(found) == 1:
        return next(iter(found.values()))
    places = ", ".join(str(directory) for directory in search_path) or "no directory at all"
    if not found:
        raise InputError(
            f"There is no prompt {label!r} in {places}; write {label}/<version>{_SUFFIX} in one of them."
        )
    versions = ", ".join(sorted(found))
    if not version:
        raise InputError(
            f"The prompt {label!r} has several versions: {versions}; name one, as {label}@<version>."
        )
    raise InputError(f"The prompt {label!r} has no version {version!r} in {places}; it has {versions}.")


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    import yaml

    try:
        text = content.decode("utf-8-sig")
        _refuse_repeated_keys(path, yaml.compose(text, Loader=yaml.SafeLoader))
        values = yaml.safe_load(text)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8; save it as UTF-8.") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path} is no valid YAML{_place(error)}; mend it there.") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} is no mapping; give it at least one of the keys 'system' and 'user'.")
    return values


def _place(error: Any) -> str:
    """Return where YAML stumbled; its own message would quote the prompt."""
    mark = getattr(error, "problem_mark", None)
    return f": {error.problem} at line {mark.line + 1}, column {mark.column + 1}" if mark else ""


def _refuse_repeated_keys(path: Path, node: Any) -> None:
    """Refuse a key that stands twice: YAML readers would keep the last one and say nothing."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        for inner in node.value:
            _refuse_repeated_keys(path, inner)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, inner in node.value:
            name = str(key.value)
            if name in seen:
                line = key.start_mark.line + 1
                raise InputError(f"{path}, line {line}: the key {name!r} stands there twice; keep one.")
            seen.add(name)
            _refuse_repeated_keys(path, inner)


def _checked(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    for key, value in values.items():
        if key not in _TYPES:
            raise InputError(f"{path}: the key {key!r} is not known; known are {', '.join(_TYPES)}.")
        kind, words = _TYPES[key]
        if value is not None and not isinstance(value, kind):
            raise InputError(f"{path}: {key} is a {type(value).__name__}; give {words}.")
        _check_json(path, key, value)
    given = {key: value for key, value in values.items() if value is not None}
    if not given.get("system") and not given.get("user"):
        raise InputError(f"{path} has neither 'system' nor 'user'; give at least one of them.")
    _check_templates(str(path), given)
    return given


def _check_json(path: Path, key: str, value: Any) -> None:
    try:
        canonical_json(value)
    except (TypeError, ValueError) as error:
        # YAML reads 2024-01-31 as a date and .nan as a number
        raise InputError(f"{path}: {key} holds what JSON cannot: {error}; put it in quotes.") from error


def _check_templates(where: str, values: Mapping[str, Any]) -> None:
    for key in ("system", "user"):
        problem = syntax_problem(values.get(key) or "")
        if problem:
            raise InputError(
                f"{where}: {key} is no valid template, {problem}. "
                "Write {% raw %}…{% endraw %} around braces that are meant as they stand."
            )
