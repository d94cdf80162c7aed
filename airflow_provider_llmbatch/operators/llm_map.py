"""``@task.llm_map``: a function that yields items becomes the whole flow in one task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.bases.decorator import (
    DecoratedOperator,
    TaskDecorator,
    determine_kwargs,
    task_decorator_factory,
)

from airflow_provider_llmbatch.errors import InputError
from airflow_provider_llmbatch.operators import arguments
from airflow_provider_llmbatch.operators.batch import ITEMS_FILE, item_lines
from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator
from airflow_provider_llmbatch.operators.fate import decided

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.results.folder import Folder


class LLMBatchMapOperator(DecoratedOperator, LLMBatchDispatchOperator):
    """
    Call a function, store the items that it yields, and dispatch them.

    The items are stored beside the results, so a retry is checked against what the first try sent; the
    function must yield the same items again.

    :param python_callable: returns or yields items: mappings as in a source file, or plain texts.
    :param op_args: its positional arguments.
    :param op_kwargs: its keyword arguments.
    """

    template_fields: Sequence[str] = ("op_args", "op_kwargs", *LLMBatchDispatchOperator.template_fields)
    custom_operator_name = "@task.llm_map"
    # Airflow does not look at the signature when it maps a decorated function.
    mapped_know_queue: ClassVar[bool] = False

    def __init__(
        self,
        *,
        python_callable: Callable[..., Iterable[Mapping[str, Any] | str]],
        op_args: Sequence[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Call the function, then dispatch."""
        known = {**context, **self.op_kwargs}
        keywords = determine_kwargs(self.python_callable, self.op_args, known)
        with decided():
            self.source = self._stored(context, self.python_callable(*self.op_args, **keywords))
        return LLMBatchDispatchOperator.execute(self, context)

    def go_on(self, context: Context, event: Any = None, since: float | None = None) -> dict[str, Any]:
        """Dispatch what is left of the items that were stored before the deferral."""
        self.source = f"{self._folder(context).uri}/{ITEMS_FILE}"
        return LLMBatchDispatchOperator.go_on(self, context, event, since)

    def _folder(self, context: Context) -> Folder:
        from airflow_provider_llmbatch.operators.storage import open_folder
        from airflow_provider_llmbatch.settings import load_settings

        return open_folder(arguments.result_location(self.result_path, context, load_settings(), apart=True))

    def _stored(self, context: Context, items: Any) -> str:
        if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
            raise InputError(
                f"{self.python_callable.__name__} returned {type(items).__name__}; yield items, each a "
                "mapping such as {'id': …, 'vars': …} or a text."
            )
        folder = self._folder(context)
        folder.put(ITEMS_FILE, item_lines(items), replace=True)
        return f"{folder.uri}/{ITEMS_FILE}"


def llm_map_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """
    Make a function that yields items into a task that dispatches them.

    :param python_callable: the function.
    :param kwargs: arguments of :class:`.dispatch.LLMBatchDispatchOperator`.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        decorated_operator_class=LLMBatchMapOperator,
        **kwargs,
    )
