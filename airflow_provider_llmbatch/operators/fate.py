"""What an error or a manifest means for the task: success, retry, or failure at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_llmbatch.errors import (
    ConfigurationError,
    EndpointError,
    InputError,
    LLMBatchError,
    StaleFenceError,
    StoppedError,
)
from airflow_provider_llmbatch.operators.failed import failed_rows

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.summary import Manifest


def is_hopeless(error: BaseException) -> bool:
    """Whether another try of the task, with nothing changed, would end alike."""
    from airflow.sdk.exceptions import AirflowNotFoundException

    if isinstance(error, StoppedError):
        return not error.retryable
    return isinstance(error, ConfigurationError | InputError | StaleFenceError | AirflowNotFoundException)


@contextmanager
def decided() -> Iterator[None]:
    """
    Turn errors that a retry cannot help into ones that Airflow does not retry.

    :raises AirflowFailException: for configuration, input, and stops that need a person.
    """
    from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException

    try:
        yield
    except (LLMBatchError, AirflowNotFoundException) as error:
        if is_hopeless(error):
            raise AirflowFailException(str(error)) from error
        raise


def judge(manifest: Manifest, max_failed: float) -> None:
    """
    Decide whether a dispatch counts as done.

    :param max_failed: share of the items that may end badly.
    :raises StoppedError: when it stopped before its end.
    :raises EndpointError: when too many items failed that another try sends again.
    :raises InputError: when too many items failed for good.
    """
    from airflow_provider_llmbatch.engine.items import Outcome

    told = ", ".join(f"{n} {outcome}" for outcome, n in sorted(manifest.counts.items()))
    if manifest.state == "stopped":
        raise StoppedError(
            f"{manifest.reason} So far: {told}. {_commonest(manifest)}Results are kept in "
            f"{manifest.result_path}; clear the task to go on.",
            retryable=manifest.retryable,
            retry_after_s=manifest.retry_after_s,
        )
    failed = manifest.items - manifest.good - manifest.counts.get(Outcome.SKIPPED, 0)
    if failed <= manifest.items * max_failed:
        return
    message = (
        f"{failed} of {manifest.items} items failed, more than max_failed={max_failed:g} allows: {told}. "
        f"{_example(manifest)}Results are kept in {manifest.result_path}."
    )
    again = sum(n for outcome, n in manifest.counts.items() if not outcome.is_final)
    if again:
        raise EndpointError(f"{message} A retry sends {again} of them again.")
    raise InputError(f"{message} A retry would change nothing; look at the rows, or raise max_failed.")


def _example(manifest: Manifest) -> str:
    """Say what most failed calls had in common, and how the first failed item ended."""
    words = _commonest(manifest)
    row = next(failed_rows([manifest]), None)
    if row is None or row.error is None:
        return words
    return f"{words}The first: item {row.id!r} (number {row.index}) ended {row.outcome}: {row.error.message} "


def _commonest(manifest: Manifest) -> str:
    return f"Most failed calls: {manifest.commonest_error.rstrip('.')}. " if manifest.commonest_error else ""
