"""
Errors of the package, sorted by what the caller can do about them.

::

    LLMBatchError
    ├── ConfigurationError (ValueError)   mend the DAG, the connection or airflow.cfg
    ├── InputError (ValueError)           mend the data
    ├── EndpointError                     the service refuses or is away: resume later
    │   └── StoppedError                  the run stopped on purpose; what is left is ``unsent``
    └── StoreError                        storage or state cannot be trusted: stop before paying twice
        ├── StaleFenceError               a newer try of the same task has started
        └── StateUnreachableError         the shared state is away; the same call may succeed later

A failed *item* is a :class:`~airflow_provider_llmbatch.engine.items.Result`, never one of these.
"""

from __future__ import annotations


class LLMBatchError(Exception):
    """Something in the batch went wrong."""


class ConfigurationError(LLMBatchError, ValueError):
    """The DAG, the connection or the configuration asks for something that cannot be done."""


class InputError(LLMBatchError, ValueError):
    """The source, a prompt or earlier results cannot be used as they are."""


class EndpointError(LLMBatchError):
    """The endpoint refuses all work for now."""


class StoppedError(EndpointError):
    """
    The run stopped before all items were sent; it can be resumed.

    :param reason: what stopped it, in words for the task log.
    :param retryable: whether trying again unchanged can help.
    :param retry_after_s: seconds after which it makes sense to go on, when known.
    """

    def __init__(self, reason: str, *, retryable: bool, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class StoreError(LLMBatchError):
    """Results or state cannot be read or written; going on could pay twice."""


class StaleFenceError(StoreError):
    """A newer try of the same task has started; this one must not send anything more."""


class StateUnreachableError(StoreError):
    """The shared state is away for now; the same call may succeed later, and nothing is sent meanwhile."""
