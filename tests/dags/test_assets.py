from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


def events_of(run) -> dict[str, list[tuple[str, dict]]]:
    """Return URI and extra of the asset events of a run, by the name of the task that made them."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        found: dict[str, list[tuple[str, dict]]] = {}
        for event in session.query(AssetEvent).filter_by(source_run_id=run.run_id).order_by(AssetEvent.id):
            found.setdefault(event.source_task_id, []).append((event.uri, event.extra))
    return found


def test_outlets_tell_whoever_is_scheduled_on_them_where_the_results_are(run_dag, arrivals):
    run = run_dag("assets.py", "assets")
    assert str(run.state) == "success"
    assert len(arrivals()) == 2
    events = events_of(run)
    (_, told), (alias_uri, alias_told) = sorted(events["dispatch"])
    assert alias_told == told
    assert alias_uri == f"file://{told['result_path']}"
    assert (told["items"], told["good"], told["chunks"]) == (2, 2, 1)
    ((uri, exported),) = events["export"]
    assert uri == "answers_table"
    assert exported["rows"] == 2
    assert exported["path"].endswith("results.csv")
