"""Check results that are there already against a schema: rows in, rows out, no calls."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from airflow_provider_llmbatch.engine import manifests
from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.identity import fingerprint
from airflow_provider_llmbatch.engine.items import Outcome, PromptRef, Result
from airflow_provider_llmbatch.engine.observe.kinds import FailureKinds
from airflow_provider_llmbatch.engine.results import foreign, names, read, resume
from airflow_provider_llmbatch.engine.results.answers import Answers, read_answers
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.store import open_store
from airflow_provider_llmbatch.engine.source.row import OpenFile
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.engine.validate.check import Checked, check
from airflow_provider_llmbatch.engine.validate.schema import OutputSchema
from airflow_provider_llmbatch.errors import InputError

#: Outcomes that say something about the schema; a person's decision and a missing reply stand as they are.
_CHECKED = (Outcome.OK, Outcome.INVALID_OUTPUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """Results that are checked and kept together: those of a chunk, or a foreign file."""

    results: Iterable[Result]
    chunk: int
    #: first index, and one past the last
    start: int
    stop: int
    #: where they come from, and what they answer
    source: str
    fingerprint: str
    prompt: PromptRef
    model: str


def recheck(
    portion: Portion, schema: OutputSchema, folder: Folder, *, host: str = "", clocks: Clocks
) -> Manifest:
    """
    Check results into a folder, and say what came out; its usage and cost are nothing, as nothing was sent.

    :param folder: where the checked rows go; what an earlier check left there is replaced.
    :param host: see :attr:`.Job.host`.
    :raises InputError: when rows cannot be read, or would be written over.
    :raises StoreError: when results cannot be read or written.
    """
    if portion.source == folder.uri:
        raise InputError(f"The results in {folder.uri} would be written over; set another result_path.")
    started_at, faults = clocks.wall(), FailureKinds()
    answers = Answers(
        chunk=portion.chunk,
        start=portion.start,
        stop=portion.stop,
        fingerprint=fingerprint("recheck", portion.fingerprint, schema.digest),
        source=portion.source,
        prompt=portion.prompt,
        model=portion.model,
        schema_digest=schema.digest,
        host=host,
    )
    store = open_store(folder, answers, resume.highest_fence(folder, portion.chunk) + 1, "restart")
    with closing(store):
        for result in portion.results:
            now = rechecked(result, schema)
            if now.error is not None:
                faults.add(now.error.kind, now.error.status, now.error.code, now.error.message)
            store.add(now)
    manifest = Manifest(
        result_path=folder.uri,
        state="complete",
        items=portion.stop - portion.start,
        counts=store.compact().counts(),
        prompt=portion.prompt,
        model=portion.model,
        schema_digest=schema.digest,
        fingerprint=answers.fingerprint,
        chunk=portion.chunk,
        started_at=started_at,
        ended_at=clocks.wall(),
        commonest_error=faults.commonest(),
    )
    manifests.store(folder, manifest)
    return manifest


def rechecked(result: Result, schema: OutputSchema) -> Result:
    """Return the result as it is under a schema; what has no reply, or was decided by a person, is kept."""
    if result.outcome not in _CHECKED:
        return result
    checked = reread(result, schema)
    return replace(
        result,
        outcome=Outcome.OK if checked.problem is None else Outcome.INVALID_OUTPUT,
        output=checked.output,
        raw_output=checked.raw_output,
        salvage=checked.salvage,
        error=checked.problem,
    )


def reread(result: Result, schema: OutputSchema) -> Checked:
    """Return what the model has said in a row, as a schema reads it."""
    return _best(check(schema, text) for text in _texts(result, schema))


def of_folder(folder: Folder, chunks: Collection[int] | None = None) -> Iterator[Portion]:
    """
    Yield the results of a folder, chunk by chunk.

    :param chunks: only these.
    :raises InputError: when there are none.
    """
    found = sorted(chunk for chunk in map(names.chunk_of, folder.names()) if chunk is not None)
    if chunks is None and not found:
        raise InputError(f"There are no results in {folder.uri}; give the result_path of a dispatch task.")
    for chunk in found if chunks is None else sorted(chunks):
        answers = read_answers(folder, chunk)
        if answers is None:
            raise InputError(f"There are no results of chunk {chunk} in {folder.uri}.")
        name, _, version = str(answers["prompt"]).rpartition("@")
        yield Portion(
            results=read.results(folder, chunks=(chunk,)),
            chunk=chunk,
            start=answers["start"],
            stop=answers["stop"],
            source=folder.uri,
            fingerprint=answers["fingerprint"],
            prompt=PromptRef(name=name, version=version, sha=""),
            model=answers["model"],
        )


def of_common_ai(name: str, open_file: OpenFile) -> Portion:
    """
    Return the rows that a ``common.ai`` batch has landed; they are read twice, as they come in any order.

    :param name: of the file, for messages.
    :param open_file: opens it at its start.
    :raises InputError: for a line that is no such row.
    """
    stop, digest = 0, hashlib.sha256()
    for number, line in _lines(open_file):
        stop = max(stop, _foreign(name, number, line).index + 1)
        digest.update(line)
    return Portion(
        results=(_foreign(name, number, line) for number, line in _lines(open_file)),
        chunk=0,
        start=0,
        stop=stop,
        source=name,
        fingerprint=digest.hexdigest(),
        prompt=PromptRef(name="common.ai", version="", sha=""),
        model="",
    )


def _lines(open_file: OpenFile) -> Iterator[tuple[int, bytes]]:
    with open_file() as file:
        yield from ((number, line) for number, line in enumerate(file, start=1) if not line.isspace())


def _foreign(name: str, number: int, line: bytes) -> Result:
    try:
        return foreign.from_common_ai(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{name}, line {number}: this is no row of a common.ai batch ({error!r}). Give the file that its "
            "manifest calls result_uri."
        ) from error


def _texts(result: Result, schema: OutputSchema) -> Iterator[str | None]:
    """Yield what the model may have said: a row keeps its text only where that differs from the output."""
    if result.raw_output is not None or result.output is None:
        yield result.raw_output
        return
    if isinstance(result.output, str):
        yield result.output
    if not (schema.is_text and isinstance(result.output, str)):
        yield json.dumps(result.output, ensure_ascii=False)


def _best(tried: Iterator[Checked]) -> Checked:
    """Return the first that has no problem, or else the first."""
    first = next(tried)
    return next((one for one in (first, *tried) if one.problem is None), first)
