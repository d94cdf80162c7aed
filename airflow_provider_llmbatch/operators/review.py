"""Review: let people decide about items that failed, without a worker, and carry out what they decide."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseNotifier, BaseOperator

from airflow_provider_llmbatch.errors import StoppedError
from airflow_provider_llmbatch.operators import arguments, surroundings
from airflow_provider_llmbatch.operators.asked import Asked
from airflow_provider_llmbatch.operators.assets import made, tell_outlets
from airflow_provider_llmbatch.operators.bridge import Bridge
from airflow_provider_llmbatch.operators.deferral import defer
from airflow_provider_llmbatch.operators.dispatch import MAX_ATTEMPTS, QUEUE
from airflow_provider_llmbatch.operators.fate import decided, judge
from airflow_provider_llmbatch.operators.links import LLMBatchReviewLink, push_review_link, review_address
from airflow_provider_llmbatch.operators.observers import observing
from airflow_provider_llmbatch.operators.parking import park, said
from airflow_provider_llmbatch.operators.places import inbox_folder, review_folder
from airflow_provider_llmbatch.operators.sitting import Sitting, figures
from airflow_provider_llmbatch.operators.telling import tell
from airflow_provider_llmbatch.operators.verbatim import Verbatim

if TYPE_CHECKING:
    from datetime import timedelta

    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.again import Again
    from airflow_provider_llmbatch.engine.items import Chunk
    from airflow_provider_llmbatch.engine.job import Job
    from airflow_provider_llmbatch.engine.review.queue import Queue
    from airflow_provider_llmbatch.engine.review.rounds import Round
    from airflow_provider_llmbatch.engine.reviewing import Portion
    from airflow_provider_llmbatch.engine.summary import Manifest

#: Seconds after which a task that waits looks for itself.
LOOK_EVERY = 600.0


class LLMBatchReviewOperator(Verbatim, BaseOperator):
    """
    Wait for people to decide about items of a dispatch, carry out what they decided, and return the manifest.

    It has a manifest for each one that it was given. While it waits it holds no worker, and on Airflow 3.3 no
    triggerer either; the last decision wakes it. Decisions are made in the console (``docs/review.md``), and
    the task shows under Required Actions meanwhile. What is sent again, is sent as by the dispatch task, so
    prompt, model, parameters and type are those of that task.

    :param manifests: what dispatch tasks returned: one manifest, or those of all mapped instances.
    :param prompt: as for the dispatch task; found by the manifest's ``name@version`` when left out.
    :param source: rows, where the dispatch task had been given rows; other sources are found by themselves.
    :param llm_conn_id: connection of retries.
    :param model: as for the dispatch task; the manifest's when left out.
    :param output_type: as for the dispatch task.
    :param model_params: as for the dispatch task.
    :param review: ``failed`` for all items without a usable output, or a list of outcomes, such as
        ``["invalid_output"]``.
    :param uncertain: a CEL expression over usable rows that people should see as well, such as
        ``output.confidence < 0.7``; it can read output, outcome, attempts, finish_reason, model, salvage,
        tokens, latency_ms. A row that it cannot be applied to counts as uncertain.
    :param sample: share of the other usable rows, from 0 to 1, that people see for an audit.
    :param models: models that a retry may be sent to instead.
    :param quorum: share of the tickets, from 0 to 1, whose decisions are enough.
    :param timeout: seconds, or a timedelta, after which nobody is waited for; None waits for ever.
    :param default: what becomes of undecided tickets then: ``retry``, ``accept`` (where the output satisfies
        the schema), ``skip``, ``leave`` or ``fail`` (the task). Has to be said with a timeout or a quorum.
    :param max_rounds: how often people are asked at the most: again about what was decided and still fails.
    :param assigned_users: who may decide, each with ``id`` and ``name``; all who may answer
        human-in-the-loop requests of the DAG when empty.
    :param notifiers: are told once for each round: :class:`.notifications.review.LLMBatchReviewNotifier` or
        others; their templates can read ``review`` (round, tickets, outcomes, errors, deadline, link).
    :param look_every: seconds after which a waiting task looks for itself whether enough is decided.
    :param max_attempts: calls per item that count as tries.
    :param budget_usd: most US dollars that the results may have cost in the end, their dispatch included.
    :param max_failed: share of the items, from 0 to 1, that may still be bad before the task fails.
    :param queue: queue of the worker; ``[llmbatch] io_queue`` when left out.
    """

    template_fields: Sequence[str] = (
        "manifests",
        "prompt",
        "source",
        "llm_conn_id",
        "model",
        "model_params",
        "review",
        "uncertain",
        "sample",
        "models",
        "quorum",
        "timeout",
        "default",
        "max_rounds",
        "look_every",
        "max_attempts",
        "budget_usd",
        "max_failed",
    )
    operator_extra_links = (LLMBatchReviewLink(),)
    ui_color = "#f4e9e4"

    def __init__(
        self,
        *,
        manifests: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        prompt: str | Mapping[str, str] | None = None,
        source: Sequence[Mapping[str, Any]] | str | None = None,
        llm_conn_id: str = "llmbatch_default",
        model: str | None = None,
        output_type: Any = None,
        model_params: Mapping[str, Any] | None = None,
        review: Literal["failed"] | Sequence[str] = "failed",
        uncertain: str | None = None,
        sample: float | str = 0.0,
        models: Sequence[str] = (),
        quorum: float | str = 1.0,
        timeout: timedelta | float | str | None = None,
        default: Literal["retry", "accept", "skip", "leave", "fail"] | None = None,
        max_rounds: int | str = 2,
        assigned_users: Sequence[Mapping[str, str]] = (),
        notifiers: BaseNotifier | Sequence[BaseNotifier] = (),
        look_every: float | str = LOOK_EVERY,
        max_attempts: int | str = MAX_ATTEMPTS,
        budget_usd: Decimal | float | str | None = None,
        max_failed: float | str = 1.0,
        queue: str = QUEUE,
        **kwargs: Any,
    ) -> None:
        super().__init__(queue=queue, **kwargs)
        self.manifests = manifests
        self.prompt = prompt
        self.source = source
        self.llm_conn_id = llm_conn_id
        self.model = model
        self.output_type = output_type
        self.model_params = model_params
        self.review = review
        self.uncertain = uncertain
        self.sample = sample
        self.models = models
        self.quorum = quorum
        self.timeout = timeout
        self.default = default
        self.max_rounds = max_rounds
        self.assigned_users = assigned_users
        self.notifiers = [notifiers] if isinstance(notifiers, BaseNotifier) else list(notifiers)
        self.look_every = look_every
        self.max_attempts = max_attempts
        self.budget_usd = budget_usd
        self.max_failed = max_failed
        self._bridge: Bridge[Sequence[Manifest]] | None = None

    def execute(self, context: Context) -> Any:
        """Open what there is to decide, and wait for people."""
        with decided():
            surroundings.refuse_green_threads()
            return self._ended(context, self._sitting(context).begin)

    def go_on(self, context: Context, event: Any = None, since: float | None = None) -> Any:
        """
        Look what was decided, and go on.

        :param event: what the request in Airflow's pages was answered with.
        :param since: Unix seconds of the first deferral, when retries had to wait.
        """
        with decided():
            sitting = self._sitting(context)
            return self._ended(context, lambda: sitting.go_on(said(event)), since)

    def on_kill(self) -> None:
        """End in good order: what is paid is stored already."""
        if self._bridge is not None:
            self._bridge.cancel()

    def _ended(self, context: Context, act: Callable[[], Any], since: float | None = None) -> Any:
        """Act, and return the manifests; while retries have to wait, leave the worker."""
        from airflow_provider_llmbatch.engine.summary import Manifest
        from airflow_provider_llmbatch.settings import load_settings

        most_failed = arguments.share("max_failed", self.max_failed)
        try:
            values = act()
        except StoppedError as why:
            if why.retry_after_s is None:
                raise
            defer(self, why, since=since, now=time.time(), max_wait_s=load_settings().max_wait)
        value = values[0] if len(values) == 1 else values
        # Reports that follow a failure need the manifests too.
        context["ti"].xcom_push(key="return_value", value=value)
        manifests = [Manifest.from_json(one) for one in values]
        for manifest in manifests:
            judge(manifest, most_failed)
        tell_outlets(self, context, manifests[0].result_path, made(manifests))
        return value

    def _sitting(self, context: Context) -> Sitting:
        from airflow_provider_llmbatch.engine.review.inbox import Inbox
        from airflow_provider_llmbatch.engine.review.queue import Queue
        from airflow_provider_llmbatch.operators.storage import open_folder
        from airflow_provider_llmbatch.settings import load_settings

        push_review_link(context)
        settings, ref = load_settings(), arguments.run_ref(context)
        path = settings.results_path
        queue = Queue(open_folder(review_folder(path, ref.dag, ref.run, ref.task, ref.map_index)))
        asked = Asked(self, context, settings)
        return Sitting(
            queue=queue,
            inbox=Inbox(open_folder(inbox_folder(path))),
            run=ref,
            occasion=arguments.occasion(context),
            portions=asked.portions,
            rules=asked.rules(),
            terms=asked.terms,
            wait=lambda round: self._wait(context, queue, round),
            carry_out=lambda round, portions: self._carry_out(asked, round, portions),
            alert=lambda round: self._alert(context, queue, round),
            note=self.log.info,
        )

    def _wait(self, context: Context, queue: Queue, round: Round) -> None:
        def is_needed() -> bool:
            queue.refresh()
            return round.state == "open" and not round.is_complete

        ref, seconds = arguments.run_ref(context), arguments.seconds("look_every", self.look_every)
        if round.terms.deadline is not None:
            seconds = min(seconds, max(1.0, round.terms.deadline - time.time()))
        park(
            self,
            context,
            address=review_address(ref.dag, ref.run, ref.task, ref.map_index),
            assigned=[{"id": id, "name": name} for id, name in round.terms.assigned],
            seconds=seconds,
            is_needed=is_needed,
        )

    def _alert(self, context: Context, queue: Queue, round: Round) -> None:
        """Tell people once; what cannot be delivered is told in the log, and nothing more."""
        if not self.notifiers or not queue.claim_alert(round.number):
            return
        ref = arguments.run_ref(context)
        address = review_address(ref.dag, ref.run, ref.task, ref.map_index, absolute=True)
        tell(self.notifiers, context, {"review": figures(round, address)}, self.log)

    def _carry_out(self, asked: Asked, round: Round, portions: Sequence[Portion]) -> Sequence[Manifest]:
        from airflow_provider_llmbatch.engine.deciding import Hands, carry_out
        from airflow_provider_llmbatch.engine.run import run

        async def main() -> Sequence[Manifest]:
            state = surroundings.open_state(asked.settings)
            stops, pins = surroundings.open_stops(state), surroundings.open_routing(state)

            async def send(job: Job, chunk: Chunk, again: Again) -> Manifest:
                with observing(job, len(again.indexes), asked.settings, self.log) as observe:
                    return await run(
                        job,
                        chunk,
                        state=state,
                        observe=observe,
                        note=self.log.info,
                        again=again,
                        stops=stops,
                        pins=pins,
                    )

            hands = Hands(send=send, prompt=asked.prompt, note=self.log.info, wall=time.time)
            try:
                await surroundings.warn_about(state, self.log.warning)
                return await carry_out(round, portions, hands)
            finally:
                await state.close()

        self._bridge = Bridge()
        try:
            return self._bridge.run(main)
        except asyncio.CancelledError as error:
            raise StoppedError(
                "The task was told to end. What was decided and answered is kept; a retry, or clearing the "
                "task, goes on from there.",
                retryable=True,
            ) from error
