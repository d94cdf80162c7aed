from __future__ import annotations

from airflow.sdk import Asset, AssetAlias, BaseOperator
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_provider_llmbatch.operators.assets import tell_outlets


def told(outlets, uri="/results/größe 1", **extra):
    events = OutletEventAccessors()
    task = BaseOperator(task_id="t", outlets=outlets)
    tell_outlets(task, {"outlet_events": events}, uri, extra)
    return events


def test_each_asset_gets_what_was_made_beside_what_the_task_says_itself():
    asset = Asset("answers")
    events = told([asset], items=3)
    events[asset].extra["own"] = 1
    assert events[asset].extra == {"items": 3, "own": 1}


def test_an_alias_gets_an_asset_whose_uri_is_the_place_however_it_is_called():
    alias = AssetAlias("today")
    (event,) = told([alias], items=3)[alias].asset_alias_events
    assert event.dest_asset_key.uri == "file:///results/gr%C3%B6%C3%9Fe%201"
    assert event.extra == {"items": 3}
    (event,) = told([alias], "s3://bucket/a")[alias].asset_alias_events
    assert event.dest_asset_key.uri.startswith("s3://bucket/a")


def test_a_task_without_outlets_tells_nobody():
    assert len(told([])) == 0
    tell_outlets(BaseOperator(task_id="t"), {}, "/results", {})
