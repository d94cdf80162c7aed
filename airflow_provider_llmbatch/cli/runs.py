"""Which runs are under way, as Airflow's database knows."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_llmbatch.errors import StoreError

#: States of a run, and of a task, in which it has not ended.
RUN_STATES = ("queued", "running")
TASK_STATES = (
    "scheduled",
    "queued",
    "running",
    "restarting",
    "deferred",
    "up_for_retry",
    "up_for_reschedule",
)


def under_way(runs: Iterable[tuple[str, str]]) -> list[str]:
    """
    Return, in words, which of these runs have not ended; a run that Airflow does not know has.

    :param runs: ids of DAG and run.
    :raises StoreError: when the database cannot be asked.
    """
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError

    found = []
    try:
        with create_session() as session:
            for dag_id, run_id in sorted(runs):
                state = session.scalar(
                    select(DagRun.state).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
                )
                tasks = select(TaskInstance.task_id, TaskInstance.state).where(
                    TaskInstance.dag_id == dag_id,
                    TaskInstance.run_id == run_id,
                    TaskInstance.state.in_(TASK_STATES),
                )
                task = session.execute(tasks.limit(1)).first()
                if state in RUN_STATES:
                    found.append(f"run {run_id} of {dag_id} is {state}")
                elif task is not None:
                    found.append(f"task {task[0]} in run {run_id} of {dag_id} is {task[1]}")
    except SQLAlchemyError as error:
        raise StoreError(
            f"Airflow's database cannot be asked which runs have ended ({type(error).__name__}); run this "
            "where the scheduler runs, or give it [database] sql_alchemy_conn."
        ) from error
    return found
