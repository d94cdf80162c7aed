"""Everything a run needs, opened and checked before its first record: source, device, model, place."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion import store as names
from airflow_provider_llmbatch.engine.fusion.adviser import Ask, Choice, choose
from airflow_provider_llmbatch.engine.fusion.cache import Cache
from airflow_provider_llmbatch.engine.fusion.encoders.registry import text_model
from airflow_provider_llmbatch.engine.fusion.examine import Examiner, Rules
from airflow_provider_llmbatch.engine.fusion.graph import prepare
from airflow_provider_llmbatch.engine.fusion.hardware import DeviceFacts, Plan, plans, probe
from airflow_provider_llmbatch.engine.fusion.model import digest, fresh, load_model
from airflow_provider_llmbatch.engine.fusion.pipeline import Pipeline
from airflow_provider_llmbatch.engine.fusion.records import Record, read_records, stamp
from airflow_provider_llmbatch.engine.fusion.spec import Spec
from airflow_provider_llmbatch.engine.fusion.store import Store
from airflow_provider_llmbatch.engine.fusion.team import Team
from airflow_provider_llmbatch.engine.identity import fingerprint
from airflow_provider_llmbatch.errors import ConfigurationError, InputError

#: Rises when the same inputs would give other results.
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A run that can begin."""

    spec: Spec
    plan: Plan
    pipeline: Pipeline
    store: Store
    #: SHA-256 of all that results depend on
    fingerprint: str
    model_digest: str
    total: int
    facts: Mapping[str, Any]
    clocks: Clocks
    #: who works on it together
    team: Team
    #: what came of asking for a plan; None: nobody was asked
    choice: Choice | None = None

    def records(self) -> Iterator[Record]:
        """Yield the records, from the first."""
        return read_records(self.spec.source, self.spec.schema, self.facts, self.spec.base)


def open_run(
    spec: Spec,
    emit: Callable[[Mapping[str, Any]], None],
    clocks: Clocks,
    *,
    team: Team | None = None,
    ask: Ask | None = None,
) -> Opened:
    """
    Open a run.

    :param team: who works on it together; None for one process.
    :param ask: asks for a plan; None takes the usual one.
    :raises ConfigurationError: for a device, model or library that is not there.
    :raises InputError: when the source cannot be read or is empty.
    :raises StoreError: when there is no place for results.
    """
    team = team or Team()
    drawn, *others = draw_plans(spec)
    facts = read_facts_file(Path(spec.facts)) if spec.facts else {}
    total, inputs, patterns = _survey(spec, facts)
    if not total:
        raise InputError("The source has no records.")
    choice = None if ask is None else choose([drawn, *others], spec.schema, patterns, ask)
    if choice is not None:
        emit({"event": "plan_chosen", "usual": drawn.reason, **choice.to_json()})
        drawn = [drawn, *others][choice.index]
    torch.set_num_threads(drawn.threads)
    pipeline, model_digest = open_pipeline(spec, drawn, clocks)
    deciding = {**_deciding(spec, drawn), **({"nproc": team.size} if team.size > 1 else {})}
    key = fingerprint("fusion", VERSION, inputs, model_digest, _readers(spec), deciding)
    _refuse_change(key, team)
    with team.one_first():
        store = Store(f"{spec.result_path.rstrip('/')}/run={key[:16]}", sweep=team.leads)
        if team.leads:
            store.put(names.PLAN, json.dumps({"fingerprint": key, **drawn.to_json()}, indent=1).encode())
    emit({"event": "opened", "total": total, "fingerprint": key[:16], "plan": drawn.reason})
    return Opened(
        spec=spec,
        plan=drawn,
        pipeline=pipeline,
        store=store,
        fingerprint=key,
        model_digest=model_digest,
        total=total,
        facts=facts,
        clocks=clocks,
        team=team,
        choice=choice,
    )


def look_at_device(spec: Spec) -> DeviceFacts:
    """
    Return what is known of the spec's device, or of the share of it that each of several processes has.

    :raises ConfigurationError: when it is not there, or there are too few.
    """
    try:
        facts = probe(spec.device)
    except RuntimeError as error:
        raise ConfigurationError(f"{error}; set device to auto or cpu.") from error
    if facts.kind != "cpu" and facts.devices < spec.nproc:
        raise ConfigurationError(
            f"nproc is {spec.nproc}, and there are {facts.devices} GPUs; lower it, or set device to cpu."
        )
    return replace(facts, cores=max(1, facts.cores // spec.nproc))


def draw_plan(spec: Spec) -> Plan:
    """
    Return how the spec's device is usually used, and compute with so many threads from now on.

    :raises ConfigurationError: when it is not there.
    """
    drawn = draw_plans(spec)[0]
    torch.set_num_threads(drawn.threads)
    return drawn


def draw_plans(spec: Spec) -> list[Plan]:
    """
    Return in which ways the spec's device can be used, the usual one first.

    A training is not offered other batches: steps on them are other steps.

    :raises ConfigurationError: when it is not there.
    """
    found = plans(look_at_device(spec), batch=spec.batch_size, decoders=spec.decode_workers)
    chosen: list[Plan] = []
    for each in found:
        if spec.mode == "train" and each.batch != found[0].batch:
            continue
        drawn = replace(each, dtypes={**each.dtypes, **spec.dtypes})
        if all(replace(drawn, reason=other.reason) != other for other in chosen):
            chosen.append(drawn)
    return chosen


def open_pipeline(spec: Spec, drawn: Plan, clocks: Clocks) -> tuple[Pipeline, str]:
    """Return what runs records through the model, and the digest of the model."""
    if spec.model is None or spec.mode == "train":
        graph = fresh(spec.schema, seed=spec.seed)
    else:
        graph = load_model(Path(spec.model), spec.schema)
    model_digest = digest(graph)
    rules = Rules(require=spec.require, min_modalities=spec.min_modalities, deid=spec.deid, seed=spec.seed)
    cache = Cache(Path(spec.cache_path) if spec.cache_path else None)
    examiner = Examiner(spec.schema, rules, cache, text_model(spec.schema))
    pipeline = Pipeline(
        graph=prepare(graph, drawn), plan=drawn, examiner=examiner, rules=rules, now=clocks.now
    )
    return pipeline, model_digest


def read_facts_file(path: Path) -> dict[str, Any]:
    """
    Return facts by record id.

    :raises InputError: when a line is none.
    """
    try:
        with open(path, "rb") as file:
            rows = [json.loads(line) for line in file if line.strip()]
        return {str(row["id"]): row["facts"] for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError("The file of facts cannot be read: each line is {'id': …, 'facts': {…}}.") from error


def _refuse_change(key: str, team: Team) -> None:
    """Refuse a source that changes while several processes open it."""
    own = int(key[:8], 16)
    others = int(team.total(torch.tensor(own))) - team.size * own
    if others:
        raise InputError("A file of the source changed while the run was opened; run the task again.")


def _survey(spec: Spec, facts: Mapping[str, Any]) -> tuple[int, str, dict[str, int]]:
    """
    Return how many records there are, a digest of them and their files, and how many say to have what.

    The digest is over the sizes and times of files; having is told by the fields of a row, as bits in the
    order of the schema.
    """
    found, total = hashlib.sha256(), 0
    patterns: Counter[str] = Counter()
    for record in read_records(spec.source, spec.schema, facts, spec.base):
        found.update(stamp(record))
        total += 1
        patterns["".join("01"[name in record.inputs] for name in spec.schema.names)] += 1
    return total, found.hexdigest(), dict(patterns)


def _readers(spec: Spec) -> dict[str, int]:
    versions = {}
    for kind in sorted({each.kind for each in spec.schema}):
        if kind == "ct":
            from airflow_provider_llmbatch.engine.fusion.readers import dicom_load as reader
        elif kind == "wsi":
            from airflow_provider_llmbatch.engine.fusion.readers import wsi as reader  # type: ignore[no-redef]
        elif kind == "note":
            from airflow_provider_llmbatch.engine.fusion.readers import notes as reader  # type: ignore[no-redef]
        else:
            from airflow_provider_llmbatch.engine.fusion.readers import facts as reader  # type: ignore[no-redef]
        versions[kind] = reader.VERSION
    return versions


def _deciding(spec: Spec, drawn: Plan) -> dict[str, Any]:
    """Return what else results depend on."""
    kept = ("mode", "require", "min_modalities", "deid", "chunk_records", "seed")
    used: dict[str, Any] = {"device": drawn.device, "dtypes": dict(drawn.dtypes), "batch": drawn.batch}
    if spec.mode == "train":
        used["policies"] = {name: policy.to_json() for name, policy in spec.policies.items()}
        used["training"] = spec.training.to_json()
    return {**{name: getattr(spec, name) for name in kept}, **used, "schema": spec.schema.to_json()}
