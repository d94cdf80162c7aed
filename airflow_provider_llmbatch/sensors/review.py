"""Wait until people are done with a review, be it that of another DAG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_provider_llmbatch.operators.places import review_folder

if TYPE_CHECKING:
    from airflow.sdk import Context


class LLMBatchReviewSensor(BaseSensorOperator):
    """
    Wait until a review task has carried out what people decided, and return its manifests.

    Between its looks it holds neither a worker nor a triggerer.

    :param external_dag_id: DAG of the review task.
    :param external_task_id: the review task.
    :param external_run_id: run of that DAG; the one that is called like this run when left out.
    :param external_map_index: which of its mapped instances.
    :param poke_interval: seconds between two looks.
    """

    template_fields: Sequence[str] = (
        "external_dag_id",
        "external_task_id",
        "external_run_id",
        "external_map_index",
    )
    ui_color = "#f4e9e4"

    def __init__(
        self,
        *,
        external_dag_id: str,
        external_task_id: str,
        external_run_id: str = "{{ run_id }}",
        external_map_index: int | str = -1,
        poke_interval: float = 60.0,
        mode: Literal["poke", "reschedule"] = "reschedule",
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, mode=mode, **kwargs)
        self.external_dag_id = external_dag_id
        self.external_task_id = external_task_id
        self.external_run_id = external_run_id
        self.external_map_index = external_map_index

    def poke(self, context: Context) -> PokeReturnValue:
        """Look whether the review is over."""
        from airflow_provider_llmbatch.engine.review.queue import Queue
        from airflow_provider_llmbatch.operators.storage import open_folder
        from airflow_provider_llmbatch.settings import load_settings

        path = review_folder(
            load_settings().results_path,
            self.external_dag_id,
            self.external_run_id,
            self.external_task_id,
            int(self.external_map_index),
        )
        queue = Queue(open_folder(path, read_only=True))
        queue.refresh()
        if queue.done is None:
            if (round := queue.latest) is not None:
                self.log.info("%d of %d items are decided.", len(round.decisions), round.size)
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=queue.done["manifests"])
