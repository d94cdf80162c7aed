"""What a run adds up to: listens to the dispatcher and writes the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Literal

from airflow_provider_llmbatch.engine.again import Again
from airflow_provider_llmbatch.engine.dispatch.lane import Lane
from airflow_provider_llmbatch.engine.items import Chunk
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.engine.observe.kinds import FailureKinds
from airflow_provider_llmbatch.engine.observe.latency import LatencyHistogram
from airflow_provider_llmbatch.engine.results.store import ResultStore
from airflow_provider_llmbatch.engine.results.where import Where
from airflow_provider_llmbatch.engine.state.protocols import Meter
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.errors import LLMBatchError, StoppedError

#: Characters of a reason or an error that a manifest keeps.
REASON_LENGTH = 500


class Account:
    """
    Takes part in the events of a run and closes with its manifest.

    As a context manager it tells of the end of a run that fails or is cancelled, too.

    :param observe: who else gets the events.
    :param again: which items are sent again; None sends those that have not ended.
    """

    def __init__(
        self,
        job: Job,
        chunk: Chunk,
        store: ResultStore,
        observe: events.Observer,
        again: Again | None = None,
    ) -> None:
        self._job = job
        self._chunk = chunk
        self._store = store
        self._observe = observe
        self._latency = LatencyHistogram()
        self._failures = FailureKinds()
        self._started_at = job.clocks.wall()
        counts = store.where.counts()
        ended = sum(n for outcome, n in counts.items() if outcome.is_final)
        self._resumed = again.done(store.where) if again else ended
        observe.on(
            events.RunStarted(
                items=chunk.items,
                resumed=self._resumed,
                model=job.model,
                prompt=str(job.prompt.ref),
                possible_double_paid=store.totals.maybe_paid,
            )
        )

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            # The text of a foreign error may hold anything; it is in the task's log already.
            self._tell_end("stopped", str(error) if isinstance(error, LLMBatchError) else "")

    def on(self, event: events.Event) -> None:
        """Take an event in and pass it on."""
        if isinstance(event, events.ItemDone) and event.call_ms:
            self._latency.add(event.call_ms)
        elif isinstance(event, events.CallFailed):
            self._failures.add(event.kind, event.status, event.code, event.message)
        self._observe.on(event)

    def close(
        self,
        where: Where,
        lanes: Sequence[Lane],
        count_drift: float,
        stopped: LLMBatchError | None,
        *,
        saved_usd: Decimal,
    ) -> Manifest:
        """
        Return the manifest.

        :param where: the rows that count.
        :param lanes: know what was granted.
        :param count_drift: prompt tokens that the service counted, over those that we did.
        :param stopped: why the run stopped before its end.
        :param saved_usd: what answers that others had paid for have cost them.
        """
        job, store, now = self._job, self._store, self._job.clocks.wall()
        self._tell_end("complete" if stopped is None else "stopped", str(stopped or ""))
        return Manifest(
            result_path=store.folder.uri,
            state="complete" if stopped is None else "stopped",
            items=self._chunk.items,
            counts=where.counts(),
            resumed=self._resumed,
            usage=store.totals.usage,
            cost=store.totals.cost,
            saved_usd=saved_usd,
            limits=_taken(lanes, now - self._started_at),
            latency_ms=self._latency.summary(),
            possible_double_paid=store.possible_double_paid,
            prompt=job.prompt.ref,
            model=job.model,
            schema_digest=job.schema.digest,
            fingerprint=store.answers.fingerprint,
            chunk=self._chunk.number,
            count_drift=round(count_drift, 4),
            started_at=self._started_at,
            ended_at=now,
            reason=str(stopped or "")[:REASON_LENGTH],
            retryable=isinstance(stopped, StoppedError) and stopped.retryable,
            retry_after_s=stopped.retry_after_s if isinstance(stopped, StoppedError) else None,
            commonest_error=self._failures.commonest(),
            pilot_of=self._chunk.pilot_of,
        )

    def _tell_end(self, state: Literal["complete", "stopped"], reason: str) -> None:
        self._observe.on(
            events.RunEnded(state=state, reason=reason, possible_double_paid=self._store.possible_double_paid)
        )


def _taken(lanes: Sequence[Lane], seconds: float) -> Mapping[str, float]:
    """Return what was granted, and how much of the limit that binds most that was, from 0 to 1."""
    limiters = [lane.limiter for lane in lanes]
    return {
        "granted_requests": sum(limiter.granted_requests for limiter in limiters),
        "granted_tokens": sum(limiter.granted_tokens for limiter in limiters),
        "waited_s": round(sum(sum(limiter.waited_s.values()) for limiter in limiters), 1),
        "late_arrivals": sum(limiter.late_arrivals for limiter in limiters),
        "use": round(min(1.0, max(_shares(lanes, seconds), default=0.0)), 4),
    }


def _shares(lanes: Sequence[Lane], seconds: float) -> list[float]:
    shares = []
    for lane in lanes:
        granted = {"requests": lane.limiter.granted_requests, "tokens": lane.limiter.granted_tokens}
        meters = [meter for meter in lane.scope.meters if meter.unit in granted]
        shares += [granted[meter.unit] / _allowed(meter, seconds) for meter in meters]
    return shares


def _allowed(meter: Meter, seconds: float) -> float:
    """Return what the limit allowed meanwhile; a run shorter than the window could take a whole one."""
    windows = seconds / meter.window_s if meter.window_s else 0.0
    return meter.capacity * max(1.0, windows)
