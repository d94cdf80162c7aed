"""What the results of a chunk answer: they are never mixed with those of another input."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from airflow_provider_llmbatch.engine.items import SCHEMA_VERSION, PromptRef
from airflow_provider_llmbatch.engine.results import names, resume
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.errors import ConfigurationError, InputError, StoreError

OnExisting = Literal["resume", "restart", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the results of a chunk answer; other results are not mixed with them."""

    chunk: int
    start: int
    stop: int
    #: SHA-256 over rows, prompt, model, params and schema
    fingerprint: str
    source: str
    prompt: PromptRef
    model: str
    schema_digest: str
    #: name of the host that writes; "" where any host may
    host: str
    #: what all tries have in common until somebody clears the task; None when every try stands alone
    occasion: str | None = None
    #: the fingerprint of all rows, where these are a pilot's; whose results go with theirs. "": the same
    whole: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return what the chunk file says of them."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {"schema_version": SCHEMA_VERSION, **values, "prompt": str(self.prompt)}


def content_of(answers: Answers, since: int) -> dict[str, Any]:
    """
    Return the content of a chunk file.

    :param since: number of the try that began anew; 0 when none did.
    """
    return {**answers.to_json(), "since": since}


def put_answers(folder: Folder, answers: Answers, since: int) -> None:
    """Write a chunk file; see :func:`content_of`."""
    content = json.dumps(content_of(answers, since), indent=1).encode()
    folder.put(names.chunk_file(answers.chunk), iter([content]), replace=True)


#: What the content of a chunk file must be for anything to be made of it.
_KINDS = {"fingerprint": str, "start": int, "stop": int, "since": int}


def read_answers(folder: Folder, chunk: int) -> dict[str, Any] | None:
    """
    Return what the results of a chunk answer; None when there are none.

    :raises InputError: when another version of the package wrote them.
    :raises StoreError: when that cannot be read.
    """
    name = names.chunk_file(chunk)
    try:
        with folder.open(name) as file:
            content = file.read()
    except FileNotFoundError:
        _refuse_orphans(folder, chunk, name)
        return None
    try:
        earlier: dict[str, Any] = json.loads(content)
        version = earlier["schema_version"]
        usable = all(isinstance(earlier[key], kind) for key, kind in _KINDS.items())
    except (ValueError, KeyError, TypeError):
        version, usable = SCHEMA_VERSION, False
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{folder.uri}/{name} has schema_version {version!r}, this version of the package writes "
            f"{SCHEMA_VERSION}. Use the version that wrote it, or another result_path."
        )
    if not usable:
        raise StoreError(f"{folder.uri}/{name} cannot be read; restore it or use another result_path.")
    return earlier


def _refuse_orphans(folder: Folder, chunk: int, name: str) -> None:
    """Rows are only ever written after the file that says what they answer."""
    parts, ledgers = resume.files_of(folder, chunk)
    if parts or ledgers:
        raise StoreError(
            f"{folder.uri} holds results of chunk {chunk}, but {name}, which says what they answer, is gone. "
            "Restore it, or use another result_path."
        )


def check_answers(folder: Folder, earlier: dict[str, Any], answers: Answers, on_existing: OnExisting) -> None:
    """
    Refuse to write among results that do not belong together.

    :param earlier: what :func:`read_answers` has found.
    :raises ConfigurationError: when another host wrote there, or ``on_existing`` refuses.
    :raises InputError: when the results there answer another input.
    """
    if answers.host and earlier.get("host") not in ("", answers.host):
        raise ConfigurationError(
            f"Host {earlier.get('host')!r} wrote results to {folder.uri}, this is {answers.host!r}. A local "
            "path serves one host: set result_path or [llmbatch] results_path to storage that all workers "
            "share, and say shared_filesystem if this already is."
        )
    if on_existing == "fail":
        raise ConfigurationError(
            f"There are results in {folder.uri} and on_existing is 'fail'; use 'resume', 'restart' or "
            "another result_path."
        )
    if on_existing == "restart":
        return
    if (earlier.get("whole") or earlier["fingerprint"]) != (answers.whole or answers.fingerprint):
        now = answers.to_json()
        changed = [
            key for key in ("source", "prompt", "model", "schema_digest") if earlier.get(key) != now[key]
        ]
        raise InputError(
            f"The results in {folder.uri} answer another input (changed: "
            f"{', '.join(changed) or 'rows or params'}). Use another result_path, or on_existing='restart' "
            "to pay for all items again."
        )
    if earlier["stop"] > answers.stop:
        raise InputError(
            f"The results in {folder.uri} are of items {earlier['start']} to {earlier['stop'] - 1}; this "
            f"sample ends at {answers.stop - 1}. Leave the sample out, or use another result_path."
        )
