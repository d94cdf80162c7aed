"""Dispatch: send the items, and store a row for each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.sdk import BaseOperator

from airflow_provider_llmbatch.compat import AIRFLOW_V_3_3_PLUS
from airflow_provider_llmbatch.errors import ConfigurationError, InputError, StoppedError, StoreError
from airflow_provider_llmbatch.operators import arguments, surroundings
from airflow_provider_llmbatch.operators.assets import made, tell_outlets
from airflow_provider_llmbatch.operators.batch import job_of, read_plan
from airflow_provider_llmbatch.operators.bridge import Bridge
from airflow_provider_llmbatch.operators.deferral import defer
from airflow_provider_llmbatch.operators.fate import decided, judge
from airflow_provider_llmbatch.operators.links import LLMBatchReportLink, push_report_link
from airflow_provider_llmbatch.operators.observers import observing
from airflow_provider_llmbatch.operators.places import Note, leave_note
from airflow_provider_llmbatch.operators.routes import Given, read_table
from airflow_provider_llmbatch.operators.verbatim import Verbatim
from airflow_provider_llmbatch.settings import queue_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.items import Chunk
    from airflow_provider_llmbatch.engine.job import Job
    from airflow_provider_llmbatch.engine.summary import Manifest
    from airflow_provider_llmbatch.settings import Settings

#: Calls per item that count as tries.
MAX_ATTEMPTS = 5
#: Share of items that may end badly before the task fails.
MAX_FAILED = 0.1
#: Finished items that all fail in one way before nothing more is sent.
FAIL_FAST = 20

_ON_EXISTING = ("resume", "restart", "fail")
#: Who goes first, first.
_PRIORITIES = ("normal", "low")
#: Where such tasks run, unless one names a queue.
QUEUE = queue_of("io_queue")


class LLMBatchDispatchOperator(Verbatim, BaseOperator):
    """
    Send a chunk of items, or a whole source, and return the manifest.

    A retry, and a cleared task, go on where the last try ended: finished items are not sent again. Events of
    the task's outlets say where the results are: see :mod:`.assets`.

    :param chunk: a descriptor from :class:`.split.LLMBatchSplitOperator`, usually by ``.expand(chunk=…)``.
    :param source: instead of a chunk: a path or URL (JSONL, CSV, Parquet), or a list of rows.
    :param prompt: ``name@version``, a mapping with ``system`` and optionally ``user``, or ``rollout:<name>``
        for two versions on trial: see ``docs/rollout.md``.
    :param llm_conn_id: connection of type ``llmbatch`` (``openai`` and ``pydanticai`` work as well).
    :param model: model to ask; the connection's when left out.
    :param output_type: what a reply must be: a pydantic model or a path to one (``package.module:Model``),
        or a JSON schema; the prompt's ``output_schema`` when left out.
    :param result_path: folder of the results, or a URL, which may name a connection
        (``s3://my_conn@bucket/path``); one per task and run below ``[llmbatch] results_path`` when left out.
    :param model_params: request parameters, such as ``{"max_tokens": 200}``, over those of the prompt.
    :param routes: several endpoints for one task: a mapping with ``endpoints`` (by name, each with
        ``llm_conn_id`` and ``model``), ``rules`` (each with ``if``, ``use`` and optionally ``from``) and
        ``sticky``; or a list of connections, each of which stands in for the one before it. Checked when the
        DAG is parsed, and not a template.
    :param max_attempts: calls per item that count as tries; being throttled does not.
    :param budget_usd: most US dollars for all chunks of this task in this run; the rest stays unsent.
    :param sample: a pilot: only the first so many items of the source. The manifest says what the rest would
        cost; the same task without a sample and with the same ``result_path`` goes on with the rest.
    :param max_failed: share of the items, from 0 to 1, that may end badly before the task fails.
    :param fail_fast: stop when the first so many finished items all failed in one way; 0 never does.
    :param max_wait: seconds an item may wait for limits and retries; ``[llmbatch] max_wait`` when left out.
    :param max_runtime: seconds after which the task gives its process back for a moment, and goes on in a new
        one: below a time-out that the cluster has.
    :param deferrable: whether the task leaves its worker while nothing can be sent for longer than
        ``[llmbatch] defer_after``: throttled, over its limit, or until a budget of a day begins anew.
    :param priority: where tasks wait for the same limits, ``normal`` goes before ``low``; when left out, runs
        of a backfill are ``low``.
    :param reuse: pay for each question once: wait for, and take, the answer of any other task that asks or
        has asked the same of the same service.
    :param on_existing: what to do with results that were there before the task began or was cleared:
        ``resume``, ``restart`` (pay again), ``fail``. A retry always resumes.
    :param queue: queue of the worker; ``[llmbatch] io_queue`` when left out.
    """

    template_fields: Sequence[str] = (
        "chunk",
        "source",
        "prompt",
        "llm_conn_id",
        "model",
        "result_path",
        "model_params",
        "max_attempts",
        "budget_usd",
        "sample",
        "max_failed",
        "fail_fast",
        "max_wait",
        "max_runtime",
        "deferrable",
        "priority",
        "reuse",
        "on_existing",
    )
    operator_extra_links = (LLMBatchReportLink(),)
    #: Whether Airflow gives mapped tasks the queue that the signature names.
    mapped_know_queue: ClassVar[bool] = AIRFLOW_V_3_3_PLUS
    ui_color = "#e8f0e4"

    def __init__(
        self,
        *,
        prompt: str | Mapping[str, str],
        chunk: Mapping[str, Any] | None = None,
        source: str | Sequence[Mapping[str, Any]] | None = None,
        llm_conn_id: str = "llmbatch_default",
        model: str | None = None,
        output_type: Any = None,
        result_path: str | None = None,
        model_params: Mapping[str, Any] | None = None,
        routes: Given | None = None,
        max_attempts: int | str = MAX_ATTEMPTS,
        budget_usd: Decimal | float | str | None = None,
        sample: int | str | None = None,
        max_failed: float | str = MAX_FAILED,
        fail_fast: int | str = FAIL_FAST,
        max_wait: float | str | None = None,
        max_runtime: float | str | None = None,
        deferrable: bool | str = True,
        priority: Literal["normal", "low"] | None = None,
        reuse: bool | str = False,
        on_existing: Literal["resume", "restart", "fail"] = "resume",
        queue: str = QUEUE,
        **kwargs: Any,
    ) -> None:
        super().__init__(queue=queue, **kwargs)
        self.prompt = prompt
        self.chunk = chunk
        self.source = source
        self.llm_conn_id = llm_conn_id
        self.model = model
        self.output_type = output_type
        self.result_path = result_path
        self.model_params = model_params
        self.routes = routes
        if routes is not None:
            read_table(routes)
        self.max_attempts = max_attempts
        self.budget_usd = budget_usd
        self.sample = sample
        self.max_failed = max_failed
        self.fail_fast = fail_fast
        self.max_wait = max_wait
        self.max_runtime = max_runtime
        self.deferrable = deferrable
        self.priority = priority
        self.reuse = reuse
        self.on_existing = on_existing
        self._bridge: Bridge[Manifest] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Dispatch, and return the manifest."""
        if self.retries == 0:
            self.log.warning(
                "retries is 0: should its worker be killed, this task fails and stands still until somebody "
                "clears it. Give it retries, such as default_args={'retries': 3}."
            )
        return self._dispatch_or_defer(context, None)

    def go_on(self, context: Context, event: Any = None, since: float | None = None) -> dict[str, Any]:
        """
        Dispatch what is left, after a deferral.

        :param event: of the trigger; storage knows better what is left.
        :param since: Unix seconds of the first deferral.
        """
        return self._dispatch_or_defer(context, since)

    def _dispatch_or_defer(self, context: Context, since: float | None) -> dict[str, Any]:
        from airflow_provider_llmbatch.settings import load_settings

        with decided():
            surroundings.refuse_green_threads()
            settings = load_settings()
            if not self.mapped_know_queue and arguments.run_ref(context).map_index >= 0:
                surroundings.hint_at_queue(settings, self.queue, self.log.warning)
            try:
                return self._dispatch(context, settings)
            except StoppedError as why:
                if why.retry_after_s is None or not arguments.yes_or_no("deferrable", self.deferrable):
                    raise
                wait = arguments.seconds("max_wait", self._max_wait(settings))
                defer(self, why, since=since, now=time.time(), max_wait_s=wait)

    def on_kill(self) -> None:
        """End in good order: what is paid is stored already."""
        if self._bridge is not None:
            self._bridge.cancel()

    def _priority(self, context: Context) -> str:
        given = arguments.optional_text(self.priority) or arguments.usual_priority(context)
        return str(arguments.choice("priority", given, _PRIORITIES))

    def _max_wait(self, settings: Settings) -> Any:
        return arguments.optional_text(self.max_wait) or settings.max_wait

    def _dispatch(self, context: Context, settings: Settings) -> dict[str, Any]:
        from airflow_provider_llmbatch.engine.run import pilot, whole

        push_report_link(context)
        if self.chunk:
            job, chunk = self._planned(context, settings)
        else:
            job = self._job(context, settings, self._rows())
            chunk = whole(job)
        chunk = pilot(job, chunk)
        self._leave_note(context, settings, job)
        manifest = self._run(job, chunk, settings)
        if manifest.pilot_of:
            self.log.info(
                "A pilot of %d of %d items; a run without sample into this result_path sends the rest%s.",
                manifest.items,
                manifest.pilot_of,
                "" if manifest.rest_usd is None else f", for about ${manifest.rest_usd:.4f}",
            )
        value = manifest.to_json()
        try:
            judge(manifest, job.max_failed)
        except Exception:
            # Reports and reviews that follow a failure need the manifest too.
            context["ti"].xcom_push(key="return_value", value=value)
            raise
        tell_outlets(self, context, manifest.result_path, made([manifest]))
        return value

    def _leave_note(self, context: Context, settings: Settings, job: Job) -> None:
        """Tell the console where the results are; it is no reason to fail when that cannot be done."""
        from airflow_provider_llmbatch.operators.storage import open_folder

        budget = None if job.budget_usd is None else format(job.budget_usd, "f")
        note = Note(result_path=open_folder(job.result_path).uri, chunk=self.chunk, budget_usd=budget)
        place = arguments.own_folder(context, settings, apart=not self.chunk)
        try:
            leave_note(open_folder(place), note)
        except StoreError as error:
            self.log.warning("The report page will not find this task: %s", error)

    def _rows(self) -> str | Sequence[Mapping[str, Any]]:
        source = arguments.rows_or_path(self.source)
        if source is None:
            raise ConfigurationError(
                "Neither chunk nor source is set; give a path, a list of rows, or a chunk of a split task."
            )
        return source

    def _planned(self, context: Context, settings: Settings) -> tuple[Job, Chunk]:
        plan = read_plan(self.chunk)
        job = self._job(context, settings, plan.source)
        number = int((self.chunk or {})["chunk"])
        if plan.prompt != job.prompt.ref or plan.model != job.model:
            raise InputError(
                f"The plan was made for {plan.prompt} ({plan.prompt.sha[:12]}) and model {plan.model!r}, "
                f"this task has {job.prompt.ref} ({job.prompt.ref.sha[:12]}) and {job.model!r}. Nothing was "
                "sent; clear the split task as well."
            )
        return job, plan.chunks[number]

    def _job(self, context: Context, settings: Settings, source: str | Sequence[Mapping[str, Any]]) -> Job:
        from airflow_provider_llmbatch.engine.dispatch.policy import Policy
        from airflow_provider_llmbatch.engine.locations import is_local

        result_path = arguments.result_location(self.result_path, context, settings, apart=not self.chunk)
        if is_local(result_path):
            surroundings.refuse_other_hosts(settings, f"The result path {result_path}")
        table = None if self.routes is None else read_table(self.routes)
        runtime = arguments.optional_text(self.max_runtime)
        deferrable = arguments.yes_or_no("deferrable", self.deferrable)
        return job_of(
            context,
            settings,
            source=source,
            prompt=self.prompt,
            llm_conn_id=self.llm_conn_id,
            model=self.model,
            output_type=self.output_type,
            model_params=self.model_params,
            result_path=result_path,
            sample=self.sample,
            max_failed=self.max_failed,
            routes=table,
            budget_usd=arguments.dollars("budget_usd", self.budget_usd),
            on_existing=arguments.choice("on_existing", self.on_existing, _ON_EXISTING),
            occasion=arguments.occasion(context),
            priority=_PRIORITIES.index(self._priority(context)),
            policy=Policy(
                max_attempts=arguments.whole_number("max_attempts", self.max_attempts),
                sticky=table.sticky if table else False,
                max_wait_s=arguments.seconds("max_wait", self._max_wait(settings)),
                defer_after_s=settings.defer_after if deferrable else None,
                max_runtime_s=arguments.seconds("max_runtime", runtime) if deferrable and runtime else None,
                fail_fast=arguments.whole_number("fail_fast", self.fail_fast, least=0),
            ),
        )

    def _run(self, job: Job, chunk: Chunk, settings: Settings) -> Manifest:
        from airflow_provider_llmbatch.engine.run import run

        async def main() -> Manifest:
            state = surroundings.open_state(settings)
            cached = job.connection.cache_on_throttle != "never"
            claims = surroundings.open_claims(state) if reuse or cached else None
            stops, pins = surroundings.open_stops(state), surroundings.open_routing(state)
            try:
                await surroundings.warn_about(state, self.log.warning)
                return await run(
                    job,
                    chunk,
                    state=state,
                    observe=observe,
                    note=self.log.info,
                    claims=claims,
                    reuse_when="first" if reuse else "throttled",
                    stops=stops,
                    pins=pins,
                )
            finally:
                await state.close()

        reuse = arguments.yes_or_no("reuse", self.reuse)
        self._bridge = Bridge()
        try:
            with observing(job, chunk.items, settings, self.log) as observe:
                return self._bridge.run(main)
        except asyncio.CancelledError as error:
            raise StoppedError(
                f"The task was told to end. What was answered is kept in {job.result_path}; a retry, or "
                "clearing the task, goes on from there.",
                retryable=True,
            ) from error
