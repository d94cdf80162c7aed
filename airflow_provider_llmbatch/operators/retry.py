"""When Airflow should try a task again, and when that would change nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_llmbatch.compat import RetryPolicy
from airflow_provider_llmbatch.errors import EndpointError, StateUnreachableError, StoppedError
from airflow_provider_llmbatch.operators.fate import is_hopeless

if TYPE_CHECKING:
    from airflow.sdk import Context, RetryDecision

#: Retries are spread over this share of their delay, so that the tasks of a run do not all come back at once.
JITTER = 0.1


class LLMBatchRetryPolicy(RetryPolicy):
    """
    Decide about retries by what went wrong, for Airflow's ``retry_policy`` (3.3 and newer).

    - What a retry cannot help fails at once, whatever ``retries`` says: bad input, a wrong argument or
      connection, an unknown model or URL, a prompt that is not the plan's, a run that somebody stopped.
    - A limit or an outage that says when it ends is waited for.
    - Another outage is waited for longer from try to try.
    - Anything else is left to the task's ``retries`` and ``retry_delay``.

    Operators of this package fail at once without it, too; the policy also serves other tasks that use its
    hook or its engine, and knows how long to wait. In ``default_args`` it does no harm on Airflow 3.2, which
    does not ask it:

    .. code-block:: python

        default_args={"retries": 3, "retry_policy": LLMBatchRetryPolicy()}

    :param delay: wait after the first failure of an outage that does not say when it ends; it doubles with
        each try.
    :param longest: longest such wait.
    :param luck: returns a number from 0 to 1, for the jitter.
    """

    def __init__(
        self,
        *,
        delay: timedelta = timedelta(minutes=1),
        longest: timedelta = timedelta(minutes=15),
        luck: Callable[[], float] = random.random,
    ) -> None:
        self.delay = delay
        self.longest = longest
        self._luck = luck

    def __repr__(self) -> str:
        # Airflow 3.2 writes it into the serialized DAG, where it must not change from parse to parse.
        return f"{type(self).__name__}(delay={self.delay}, longest={self.longest})"

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,
        context: Context | None = None,
    ) -> RetryDecision:
        """
        Decide about a failure.

        :param exception: what the task raised; what caused it counts as well.
        :param try_number: 1 for the first.
        :param max_tries: is kept to by Airflow.
        :param context: is not looked at.
        """
        from airflow.sdk import RetryDecision

        for error in _with_causes(exception):
            kind = type(error).__name__
            if is_hopeless(error):
                return RetryDecision.fail(f"{kind}: another try would end alike.")
            if isinstance(error, EndpointError | StateUnreachableError):
                wait = self._wait(error, try_number)
                return RetryDecision.retry(
                    wait, f"{kind}: it may have passed in {wait.total_seconds():.0f} s."
                )
        return RetryDecision.default()

    def serialize(self) -> dict[str, Any]:
        """Return what makes the policy up."""
        return {"delay": self.delay.total_seconds(), "longest": self.longest.total_seconds()}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> LLMBatchRetryPolicy:
        """Make a policy of what :meth:`serialize` returned."""
        return cls(delay=timedelta(seconds=data["delay"]), longest=timedelta(seconds=data["longest"]))

    def _wait(self, error: BaseException, try_number: int) -> timedelta:
        told = error.retry_after_s if isinstance(error, StoppedError) else None
        if told is not None:
            wait = timedelta(seconds=told)
        else:
            # Beyond ten doublings the longest wait is reached, whatever the first one was.
            wait = min(self.longest, self.delay * 2 ** min(max(try_number, 1) - 1, 10))
        return wait * (1.0 + JITTER * self._luck())


def _with_causes(exception: BaseException) -> Iterator[BaseException]:
    """Yield an exception, and what it was raised from."""
    error: BaseException | None = exception
    while error is not None:
        yield error
        error = error.__cause__
