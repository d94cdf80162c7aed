"""Policies that let a rehearsal be short: DAGs run when they are told to, and a retry comes at once."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG


def dag_policy(dag: DAG) -> None:
    """Take away the schedule, and the pause before a retry."""
    from airflow.timetables.simple import NullTimetable

    dag.timetable = NullTimetable()
    for task in dag.tasks:
        task.retry_delay = timedelta(seconds=2)
