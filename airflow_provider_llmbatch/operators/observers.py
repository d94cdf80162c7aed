"""Who is told of a run: the task's log, and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.job import Job
    from airflow_provider_llmbatch.engine.observe.events import Observer
    from airflow_provider_llmbatch.engine.observe.log import Log
    from airflow_provider_llmbatch.engine.observe.metrics import StatsClient
    from airflow_provider_llmbatch.settings import Settings


@contextmanager
def observing(job: Job, items: int, settings: Settings, log: Log) -> Iterator[Observer]:
    """
    Yield what takes the events of a run.

    :param items: how many items the task sends.
    :param log: the task's log.
    """
    from airflow_provider_llmbatch.engine.observe.events import Fanout
    from airflow_provider_llmbatch.engine.observe.log import LogObserver
    from airflow_provider_llmbatch.engine.observe.metrics import MetricsObserver

    now = job.clocks.now
    observers: list[Observer] = [LogObserver(log, total=items, now=now)]
    with ExitStack() as stack:
        stats = _stats(settings, log, stack)
        if stats is not None:
            observers.append(MetricsObserver(stats, job=job.run.dag, task=job.run.task, now=now))
        yield Fanout(observers)


def _stats(settings: Settings, log: Log, stack: ExitStack) -> StatsClient | None:
    """Return the statsd server of ``[llmbatch]``, else what Airflow's own metrics go to."""
    if settings.statsd_host is None:
        from airflow.sdk.observability.stats import Stats

        return Stats
    from airflow_provider_llmbatch.engine.observe.metrics import connect

    try:
        client = connect(settings.statsd_host, settings.statsd_port, settings.statsd_prefix)
    except OSError as error:  # nobody loses a batch for want of a metric
        log.warning("No metrics are sent: [llmbatch] statsd_host is %r: %s", settings.statsd_host, error)
        return None
    return stack.enter_context(closing(client))
