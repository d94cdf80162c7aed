"""The tabs that Airflow's UI has of the console."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.console.conftest import WHO
from tests.engine.rollout.whole import NAME, rollout


@pytest.fixture
def dag_run(airflow_db):
    """Have Airflow know a DAG with a review task, and a run of it."""
    from airflow.api.common.delete_dag import delete_dag
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.sdk import DAG
    from airflow.serialization.definitions.dag import SerializedDAG
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    with DAG(WHO[0], schedule=None) as dag:
        EmptyOperator(task_id=WHO[2])
    now = datetime.now(UTC)
    with create_session() as session:
        session.merge(DagBundleModel(name="tests"))
        session.flush()
        lazy = LazyDeserializedDAG.from_dag(dag)
        SerializedDAG.bulk_write_to_db("tests", None, [lazy], session=session)
        session.flush()
        SerializedDagModel.write_dag(lazy, bundle_name="tests", session=session)
        session.flush()
        known = SerializedDagModel.get(WHO[0], session=session).dag
        known.create_dagrun(
            run_id=WHO[1],
            logical_date=now,
            run_after=now,
            run_type=DagRunType.MANUAL,
            state=DagRunState.RUNNING,
            triggered_by=DagRunTriggeredByType.TEST,
            session=session,
        )
    yield
    with create_session() as session:
        delete_dag(WHO[0], session=session)


def test_a_task_has_a_tab_with_its_queue(visit, open_queue, dag_run):
    open_queue()
    page = visit(f"/dags/{WHO[0]}/runs/{WHO[1]}/tasks/{WHO[2]}")
    page.get_by_role("link", name="LLM review").click()
    page.frame_locator("iframe").get_by_role("link", name="item-00000").wait_for()


def test_a_run_has_a_tab_with_its_progress(visit, dag_run):
    page = visit(f"/dags/{WHO[0]}/runs/{WHO[1]}")
    page.get_by_role("link", name="LLM progress").click()
    page.frame_locator("iframe").get_by_text("No task of this run has begun").wait_for()


def test_a_dag_has_a_tab_with_its_rollouts(visit, dag_run, results_path):
    rollout(results_path)
    page = visit(f"/dags/{WHO[0]}")
    page.get_by_role("link", name="LLM rollouts").click()
    page.frame_locator("iframe").get_by_role("link", name=f"{WHO[0]} · {NAME}").wait_for()
