"""Grade: score what two prompt versions on trial have answered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_llmbatch.errors import ConfigurationError, InputError, StoppedError
from airflow_provider_llmbatch.operators import arguments, surroundings
from airflow_provider_llmbatch.operators.batch import job_of
from airflow_provider_llmbatch.operators.bridge import Bridge
from airflow_provider_llmbatch.operators.dispatch import QUEUE
from airflow_provider_llmbatch.operators.fate import decided
from airflow_provider_llmbatch.operators.places import rollout_folder
from airflow_provider_llmbatch.operators.sending import send
from airflow_provider_llmbatch.operators.trial import grade_extra, open_steps
from airflow_provider_llmbatch.operators.verbatim import Verbatim

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.grading import Golden
    from airflow_provider_llmbatch.engine.job import Job
    from airflow_provider_llmbatch.engine.rollout.grader import Grader
    from airflow_provider_llmbatch.engine.rollout.judge import Judged
    from airflow_provider_llmbatch.engine.rollout.sheet import Sheet
    from airflow_provider_llmbatch.engine.summary import Manifest
    from airflow_provider_llmbatch.settings import Settings

GOLDEN_METRICS = ("token_f1", "bleu")
LIVE_METRICS = ("validity", "refusal", "truncation", "cost_usd", "latency_ms")
_ARMS = {"base", "candidate"}


class LLMBatchGradeOperator(Verbatim, BaseOperator):
    """
    Score the answers of a rollout that no earlier round has used; returns where the scores are.

    Answers to production items are found by themselves: each dispatch with ``prompt="rollout:<name>"`` leaves
    a note, and one that has ended is graded once. The golden set is dispatched for both arms before.

    :param rollout: its name.
    :param golden: what the dispatches of the golden set returned, as ``base`` and ``candidate``; None for
        production items alone.
    :param source: the golden set: path or URL, or rows; its items have references.
    :param golden_metrics: graders of the golden set: names, dotted paths of others
        (``package.module:Class``), or mappings with either as ``grader`` and what its class takes.
    :param live_metrics: graders of production items, likewise; an empty list leaves them out.
    :param judge: a model compares the pairs of the golden set: True takes the prompt of this package, or
        ``name@version`` or a mapping as for the dispatch operator, with the variables ``question``,
        ``first``, ``second`` and ``reference``.
    :param llm_conn_id: connection of the judge.
    :param model: model of the judge; the connection's when left out.
    :param model_params: request parameters of the judge.
    :param budget_usd: most US dollars for the judge in this run; what is left over is missing.
    :param queue: queue of the worker; ``[llmbatch] io_queue`` when left out.
    """

    template_fields: Sequence[str] = (
        "rollout",
        "golden",
        "source",
        "golden_metrics",
        "live_metrics",
        "judge",
        "llm_conn_id",
        "model",
        "model_params",
        "budget_usd",
    )
    ui_color = "#f0ece4"

    def __init__(
        self,
        *,
        rollout: str,
        golden: Mapping[str, Any] | None = None,
        source: str | Sequence[Mapping[str, Any]] | None = None,
        golden_metrics: Sequence[str | Mapping[str, Any]] | None = None,
        live_metrics: Sequence[str | Mapping[str, Any]] = LIVE_METRICS,
        judge: bool | str | Mapping[str, str] = False,
        llm_conn_id: str = "llmbatch_default",
        model: str | None = None,
        model_params: Mapping[str, Any] | None = None,
        budget_usd: Decimal | float | str | None = None,
        queue: str = QUEUE,
        **kwargs: Any,
    ) -> None:
        super().__init__(queue=queue, **kwargs)
        self.rollout = rollout
        self.golden = golden
        self.source = source
        self.golden_metrics = golden_metrics
        self.live_metrics = live_metrics
        self.judge = judge
        self.llm_conn_id = llm_conn_id
        self.model = model
        self.model_params = model_params
        self.budget_usd = budget_usd
        self._bridge: Bridge[Manifest] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Grade, store the scores, and return where they are."""
        from airflow_provider_llmbatch.engine.identity import fingerprint
        from airflow_provider_llmbatch.operators.storage import open_folder
        from airflow_provider_llmbatch.settings import load_settings

        with decided():
            surroundings.refuse_green_threads()
            settings, ref = load_settings(), arguments.run_ref(context)
            sheet = self._graded(context, settings)
            folder = open_folder(rollout_folder(settings.results_path, ref.dag, str(self.rollout)))
            name = f"grades-{fingerprint('grades', arguments.occasion(context))[:32]}.jsonl"
            folder.put(name, sheet.lines(), replace=True)
            for one in sheet.scores:
                self.log.info(
                    "%s: %d and %d units, missing %d and %d%s",
                    one.metric,
                    len(one.base),
                    len(one.candidate),
                    one.missing_base,
                    one.missing_candidate,
                    f" ({one.failure or one.note})" if one.failure or one.note else "",
                )
            return {
                "grades": f"{folder.uri}/{name}",
                "live": len(sheet.used),
                "failed": {one.metric: one.failure for one in sheet.scores if one.failure},
            }

    def on_kill(self) -> None:
        """End in good order: what the judge has said is stored already."""
        if self._bridge is not None:
            self._bridge.cancel()

    def _graded(self, context: Context, settings: Settings) -> Sheet:
        from airflow_provider_llmbatch.engine.grading import graded
        from airflow_provider_llmbatch.operators.storage import open_folder, open_source

        golden = self._golden(context)
        wanted = self.golden_metrics if self.golden_metrics is not None else GOLDEN_METRICS if golden else ()
        asks = self.judge not in (False, "False", None, "")
        judged = self._judged(context, settings, golden) if asks else None
        return graded(
            open_steps(arguments.run_ref(context).dag, str(self.rollout), settings),
            golden=golden,
            golden_graders=_graders("golden_metrics", wanted),
            live_graders=_graders("live_metrics", self.live_metrics),
            judge=judged.scores if judged else None,
            open_folder=lambda path: open_folder(path, read_only=True),
            open_source=open_source,
        )

    def _golden(self, context: Context) -> Golden | None:
        from airflow_provider_llmbatch.engine.grading import golden_of
        from airflow_provider_llmbatch.engine.items import Item
        from airflow_provider_llmbatch.operators.storage import open_folder, open_source

        arms: Any = self.golden
        if not arms:
            return None
        if not isinstance(arms, Mapping) or set(arms) != _ARMS:
            raise ConfigurationError(
                "golden is no mapping of 'base' and 'candidate'; give what the two dispatches returned."
            )
        source = arguments.rows_or_path(self.source)
        if source is None:
            raise ConfigurationError("source is not set; give the golden set, which has the references.")
        given = arguments.source_location(source, context) if isinstance(source, str) else source
        rows = (row.item for row in open_source(given).rows())
        return golden_of(
            arguments.manifests_of("golden['base']", arms["base"]),
            arguments.manifests_of("golden['candidate']", arms["candidate"]),
            [item for item in rows if isinstance(item, Item)],
            lambda path: open_folder(path, read_only=True),
            source=given if isinstance(given, str) else "",
        )

    def _judged(self, context: Context, settings: Settings, golden: Golden | None) -> Judged:
        from airflow_provider_llmbatch.engine.results.read import results
        from airflow_provider_llmbatch.engine.rollout import judge
        from airflow_provider_llmbatch.operators.storage import open_folder

        if golden is None:
            raise ConfigurationError("judge is set and golden is not; the judge compares pairs.")
        rows = judge.questions(golden.items, golden.base, golden.candidate)
        if not rows:
            return judge.judged((), golden.items)
        manifest = self._ask(context, settings, rows, dict(judge.PROMPT), dict(judge.SCHEMA))
        found = results(open_folder(manifest.result_path, read_only=True), chunks=[manifest.chunk])
        return judge.judged(found, golden.items)

    def _ask(
        self,
        context: Context,
        settings: Settings,
        rows: Sequence[Mapping[str, Any]],
        prompt: Mapping[str, str],
        schema: Mapping[str, Any],
    ) -> Manifest:
        """Have the judge asked, by the engine that asks everybody: under its limits, budgets and retries."""
        job = job_of(
            context,
            settings,
            source=rows,
            prompt=prompt if str(self.judge) == "True" else self.judge,
            llm_conn_id=self.llm_conn_id,
            model=self.model,
            output_type=schema,
            model_params=self.model_params,
            result_path=arguments.result_location(None, context, settings, apart=True),
            sample=None,
            max_failed=1.0,
            budget_usd=arguments.dollars("budget_usd", self.budget_usd),
            occasion=arguments.occasion(context),
        )
        return self._sent(job, len(rows), settings)

    def _sent(self, job: Job, count: int, settings: Settings) -> Manifest:
        self._bridge = Bridge()
        try:
            return send(job, count, settings, self.log, self._bridge)
        except asyncio.CancelledError as error:
            raise StoppedError(
                "The task was told to end. What the judge has said is kept; a retry goes on from there.",
                retryable=True,
            ) from error


def _graders(name: str, specs: Any) -> list[Grader]:
    from airflow_provider_llmbatch.engine.rollout.grader import grader_of

    if isinstance(specs, str) or not isinstance(specs, Sequence):
        raise InputError(f"{name} is {specs!r}; give a list of graders.")
    with grade_extra():
        return [grader_of(spec) for spec in specs]
