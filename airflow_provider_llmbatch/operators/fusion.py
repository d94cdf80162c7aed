"""Fusion: records of CT, slides, notes and facts into embeddings and predictions, in a process of its own."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.operators import arguments, surroundings
from airflow_provider_llmbatch.operators.assets import tell_outlets
from airflow_provider_llmbatch.operators.fate import decided
from airflow_provider_llmbatch.operators.verbatim import Verbatim
from airflow_provider_llmbatch.settings import queue_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.fusion.launch import Worker
    from airflow_provider_llmbatch.engine.fusion.spec import Deid, Device, Mode, OnBadInput, OnExisting
    from airflow_provider_llmbatch.operators.adviser import Adviser
    from airflow_provider_llmbatch.settings import Settings

QUEUE = queue_of("gpu_queue")


class LLMBatchFusionOperator(Verbatim, BaseOperator):
    """
    Embed records, predict, train a model or evaluate one; returns the manifest of the run.

    Reading and computing happen in a worker process with torch (extra ``fusion``); the task relays its
    progress. Windows of records are stored whole, so a retry goes on from the last one. See docs/fusion.md.

    :param source: path (JSONL, CSV, Parquet), or a list of rows: ``id``, for each modality a path, text or
        value, and optionally ``label``. Paths are seen from the file, or with rows from the DAG's folder.
    :param facts: what dispatch tasks returned: their good outputs become the modality ``facts``, by id.
    :param mode: ``embed``; ``predict`` with ``model``; ``train``, for which records need a ``label``; or
        ``evaluate``, for which they do as well, with ``model``.
    :param model: folder of a trained model; ``embed`` without one takes random weights, fixed by ``seed``.
        ``train`` writes it there, or into the folder of the run, and names it as ``model`` in the manifest.
    :param training: how long and how fast ``train`` trains, such as ``{"epochs": 10}``.
    :param policies: how ``train`` trains each branch, by modality, such as ``{"ct": {"frozen": True}}``.
    :param schema: ``ct+wsi+notes``, ``ct+wsi+notes+facts``, or ``{name: {"kind": …, option: value}}``.
    :param require: modalities without which a record is quarantined.
    :param min_modalities: how many of them a record needs.
    :param on_bad_input: what a record that cannot be used does: ``quarantine`` or ``fail``.
    :param max_bad_fraction: share of the records, from 0 to 1, that may be quarantined.
    :param deid: what a finding of the gate for identities does: ``refuse``, ``warn`` or ``off``.
    :param result_path: folder of the results, or a URL that the worker's environment opens; one per task and
        run below ``[llmbatch] results_path`` when left out.
    :param batch_size: records that are computed at once.
    :param chunk_records: records that are stored as one, and done again after a kill.
    :param device: ``auto``, ``cpu`` or ``cuda``.
    :param dtypes: number types by kind of modality, such as ``{"ct": "float32"}``, over those of the plan.
    :param decode_workers: threads that decode; as many as there are cores, less one, when left out.
    :param cache_path: folder that keeps decoded inputs.
    :param nproc: processes that work together, with a GPU each where there are some.
    :param plan_adviser: id of a connection whose model is asked once which of several plans it would take; it
        sees kinds of data and counts, no data. None asks nobody.
    :param seed: of random weights and of the sample of patches.
    :param worker_environment: variables of the worker, such as ``CUDA_VISIBLE_DEVICES``.
    :param on_existing: what to do with windows of the same run that are stored: ``resume`` or ``restart``.
    :param queue: queue of the worker; ``[llmbatch] gpu_queue`` when left out.
    """

    template_fields: Sequence[str] = (
        "source",
        "facts",
        "model",
        "result_path",
        "mode",
        "deid",
        "max_bad_fraction",
    )
    ui_color = "#ece4f0"

    def __init__(
        self,
        *,
        source: str | Sequence[Mapping[str, Any]],
        facts: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        mode: Mode = "embed",
        model: str | None = None,
        training: Mapping[str, Any] | None = None,
        policies: Mapping[str, Mapping[str, Any]] | None = None,
        schema: str | Mapping[str, Mapping[str, Any]] = "ct+wsi+notes",
        require: Sequence[str] = (),
        min_modalities: int = 1,
        on_bad_input: OnBadInput = "quarantine",
        max_bad_fraction: float | str = 0.05,
        deid: Deid = "refuse",
        result_path: str | None = None,
        batch_size: int = 8,
        chunk_records: int = 64,
        device: Device = "auto",
        dtypes: Mapping[str, str] | None = None,
        decode_workers: int | None = None,
        cache_path: str | None = None,
        nproc: int = 1,
        plan_adviser: str | None = None,
        seed: int = 0,
        worker_environment: Mapping[str, str] | None = None,
        on_existing: OnExisting = "resume",
        queue: str = QUEUE,
        **kwargs: Any,
    ) -> None:
        super().__init__(queue=queue, **kwargs)
        self.source = source
        self.facts = facts
        self.mode = mode
        self.model = model
        self.training = training
        self.policies = policies
        self.schema = schema
        self.require = require
        self.min_modalities = min_modalities
        self.on_bad_input = on_bad_input
        self.max_bad_fraction = max_bad_fraction
        self.deid = deid
        self.result_path = result_path
        self.batch_size = batch_size
        self.chunk_records = chunk_records
        self.device = device
        self.dtypes = dtypes
        self.decode_workers = decode_workers
        self.cache_path = cache_path
        self.nproc = nproc
        self.plan_adviser = plan_adviser
        self.seed = seed
        self.worker_environment = worker_environment
        self.on_existing = on_existing
        if training is not None or policies is not None:
            _check(schema, training or {}, policies or {})
        self._worker: Worker | None = None
        self._adviser: Adviser | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the worker, and return the manifest."""
        from airflow_provider_llmbatch.engine.fusion.launch import Worker
        from airflow_provider_llmbatch.settings import load_settings

        settings = load_settings()
        with decided(), self._spec(context, settings) as spec:
            self._adviser = self._adviser_of(context, settings, spec["result_path"])
            self._worker = Worker(spec, self.worker_environment, advise=self._adviser)
            manifest = self._worker.run(self._tell)
        counts = manifest["counts"]
        self.log.info(
            "%s of %s records fused, %s quarantined (%s); %s of them were stored before. Results: %s",
            counts["ok"],
            counts["total"],
            counts["quarantined"],
            ", ".join(f"{code} {n}" for code, n in manifest["top_error_codes"].items()) or "nothing wrong",
            counts["resumed"],
            manifest["result_path"],
        )
        tell_outlets(
            self, context, manifest["result_path"], {"result_path": manifest["result_path"], **counts}
        )
        return manifest

    def on_kill(self) -> None:
        """End the worker and all it has started; whole windows are stored already."""
        if self._adviser is not None:
            self._adviser.cancel()
        if self._worker is not None:
            self._worker.kill()

    def _adviser_of(self, context: Context, settings: Settings, place: str) -> Adviser | None:
        if not self.plan_adviser:
            return None
        from airflow_provider_llmbatch.operators.adviser import Adviser

        return Adviser(self.plan_adviser, place, context, settings, self.log)

    def _tell_choice(self, event: Mapping[str, Any]) -> None:
        if event["problem"]:
            words = "The plan adviser is not followed: %s. The usual plan is taken: %s"
            self.log.warning(words, event["problem"], event["usual"])
        else:
            words = "The plan adviser takes plan %s of 0 to %s; 0 is the usual one: %s"
            self.log.info(words, event["index"], event["of"] - 1, event["usual"])

    def _tell_training(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "training":
            held = event["held_out_loss"]
            self.log.info(
                "step %s of %s%s%s",
                event["step"],
                event["total"],
                "" if held is None else f", loss on what is held out {held:.4f}",
                "" if event["eta_s"] is None else f", {event['eta_s']:.0f} s to go",
            )
        elif event["event"] == "checkpoint_damaged":
            words = "The checkpoint of step %s is damaged and not used; training goes on from step %s."
            self.log.warning(words, event["step"], event["from_step"])
        else:
            self.log.info("Report: %s", event["report"])

    def _tell(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "opened":
            self.log.info("%s records; %s", event["total"], event["plan"])
        elif event["event"] == "plan_chosen":
            self._tell_choice(event)
        elif event["event"] in ("training", "checkpoint_damaged", "evaluated"):
            self._tell_training(event)
        elif event["event"] == "progress":
            left = "" if event["eta_s"] is None else f", {event['eta_s']:.0f} s to go"
            self.log.info(
                "%s of %s records, %s quarantined, %.1f a second%s",
                event["done"],
                event["total"],
                event["quarantined"],
                event["per_s"],
                left,
            )

    @contextmanager
    def _spec(self, context: Context, settings: Settings) -> Iterator[dict[str, Any]]:
        """Yield what the worker is asked; rows and facts lie in files of this user until it has ended."""
        with tempfile.TemporaryDirectory(prefix="llmbatch-fusion-") as folder:
            source, base = self._source(context, folder)
            yield {
                "source": source,
                "base": base,
                "facts": self._facts(folder),
                "result_path": self._result_path(context, settings),
                "model": arguments.optional_text(self.model),
                "max_bad_fraction": arguments.share("max_bad_fraction", self.max_bad_fraction),
                "dtypes": dict(self.dtypes or {}),
                "require": list(self.require),
                "plan_adviser": bool(self.plan_adviser),
                "training": dict(self.training or {}),
                "policies": {name: dict(policy) for name, policy in (self.policies or {}).items()},
                **{name: getattr(self, name) for name in _AS_THEY_ARE},
            }

    def _source(self, context: Context, folder: str) -> tuple[str, str | None]:
        source = arguments.rows_or_path(self.source)
        if source is None:
            raise ConfigurationError("source is empty; give a path (JSONL, CSV, Parquet) or a list of rows.")
        if isinstance(source, str):
            if "://" in source:
                raise ConfigurationError(
                    f"source is {source!r}, a URL; the worker reads CT and slides from a disk, and so "
                    "their list. Give a path that its host reaches."
                )
            return arguments.source_location(source, context), None
        path = _written(folder, "records.jsonl", source)
        return path, str(arguments.dag_folder(context))

    def _facts(self, folder: str) -> str | None:
        if not self.facts:
            return None
        from airflow_provider_llmbatch.engine.export import results_of
        from airflow_provider_llmbatch.engine.items import Outcome
        from airflow_provider_llmbatch.operators.storage import open_folder

        chunks: dict[str, set[int]] = {}
        for manifest in arguments.manifests_of("facts", self.facts):
            chunks.setdefault(manifest.result_path, set()).add(manifest.chunk)
        places = [(open_folder(path, read_only=True), numbers) for path, numbers in chunks.items()]
        good = results_of(places, [outcome for outcome in Outcome if outcome.is_good])
        return _written(folder, "facts.jsonl", ({"id": each.id, "facts": each.output} for each in good))

    def _result_path(self, context: Context, settings: Settings) -> str:
        from airflow_provider_llmbatch.engine.locations import connection_of, is_local

        place = arguments.result_location(self.result_path, context, settings, apart=True)
        if is_local(place):
            surroundings.refuse_other_hosts(settings, f"The result path {place}")
        elif connection_of(place) is not None:
            raise ConfigurationError(
                f"result_path {place} names a connection, which the worker of a fusion does not know; leave "
                "it out, and give the credentials in worker_environment."
            )
        return place


_AS_THEY_ARE = (
    *("mode", "schema", "min_modalities", "on_bad_input", "deid", "batch_size", "chunk_records", "device"),
    *("decode_workers", "cache_path", "seed", "on_existing", "nproc"),
)


def _check(schema: Any, training: Mapping[str, Any], policies: Mapping[str, Any]) -> None:
    """Refuse, while the DAG is parsed, what a training cannot follow."""
    from airflow_provider_llmbatch.engine.fusion.policy import read_policies, read_training
    from airflow_provider_llmbatch.engine.fusion.schema import read_schema

    read_training(training)
    read_policies(policies, read_schema(schema))


def _written(folder: str, name: str, rows: Iterable[Mapping[str, Any]]) -> str:
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path
