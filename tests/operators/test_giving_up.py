"""When a dispatch gives up: on all items, on one of them, and on results that it must not touch."""

from __future__ import annotations

import time

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.errors import EndpointError

REFUSED = {"status": 400, "error": {"message": "no such parameter value", "type": "invalid_request_error"}}
LATER = {"status": 429, "error": {"message": "slow down"}, "headers": {"retry-after-ms": "500"}}


@pytest.mark.parametrize(("fail_fast", "sent"), [("3", range(3, 6)), (0, range(12, 13))])
def test_items_that_all_fail_in_one_way_stop_the_task_before_the_rest_is_paid_for(
    stage, connect, fail_fast, sent
):
    connect(stage.service.url, max_in_flight=2)
    stage.service.play({"reply": REFUSED})
    with pytest.raises(AirflowFailException) as failed:
        stage.run(stage.dispatch(source=stage.items(12), fail_fast=fail_fast))
    assert len(stage.service.arrivals()) in sent
    manifest = Manifest.from_json(stage.instance.xcoms["return_value"])
    assert sum(manifest.counts.values()) == 12
    assert ("The first 3 finished items all ended bad_request" in str(failed.value)) == (fail_fast == "3")


def test_an_item_that_has_waited_for_max_wait_is_given_up_and_a_retry_sends_it_again(stage):
    stage.service.play({"match": {"contains": "number 1"}, "reply": LATER})
    began = time.monotonic()
    with pytest.raises(EndpointError, match="A retry sends 1 of them again"):
        stage.run(stage.dispatch(source=stage.items(3), max_wait="1.2", deferrable=False))
    assert time.monotonic() - began < 1.2 + 3
    manifest = Manifest.from_json(stage.instance.xcoms["return_value"])
    assert manifest.counts == {"ok": 2, "exhausted": 1}
    assert stage.rows()[1].error.kind == "max_wait"
    stage.service.play()
    value = stage.run(stage.dispatch(source=stage.items(3)), try_number=2)
    assert (value["counts"], value["resumed"]) == ({"ok": 3}, 2)


def test_on_existing_speaks_of_other_runs_into_the_same_folder_too(stage):
    place = {"source": stage.items(2), "result_path": str(stage.folder / "shared")}
    stage.run(stage.dispatch(**place))
    with pytest.raises(AirflowFailException, match="on_existing is 'fail'"):
        stage.run(stage.dispatch(**place, on_existing="fail"), run_id="second")
    assert stage.run(stage.dispatch(**place), run_id="third")["resumed"] == 2
    assert stage.run(stage.dispatch(**place, on_existing="restart"), run_id="fourth")["resumed"] == 0
    assert len(stage.service.arrivals()) == 4
