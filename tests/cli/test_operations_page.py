"""What the operations page promises: commands, metrics, addresses and the access list of Redis."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_provider_llmbatch.cli.definition import get_llmbatch_cli_commands
from airflow_provider_llmbatch.engine.state.redis import connect
from airflow_provider_llmbatch.operators.parked import parked
from airflow_provider_llmbatch.operators.stopping import let_go_on, stop_of, stop_run
from tests.services.redis_server import running

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()


def test_every_command_of_the_page_is_there_and_every_command_is_on_the_page():
    (group,) = get_llmbatch_cli_commands()
    named = set(re.findall(r"airflow llmbatch ([a-z-]+)", PAGE))
    assert named == {command.name for command in group.subcommands}


def test_every_metric_of_an_alert_has_a_mapping():
    mapped = set(re.findall(r"name: (llmbatch_\w+)", (ROOT / "docker" / "statsd-mapping.yml").read_text()))
    named = set(re.findall(r"\bllmbatch_\w+(?:_total|_ratio|_seconds)\b", PAGE))
    assert named
    assert named <= mapped


@pytest.mark.parametrize("address", re.findall(r"`(rediss?(?:\+\w+)?://[^`]+)`", PAGE))
def test_every_address_of_the_page_can_be_read(address, tmp_path):
    # A file of certificates is opened when the first call is made.
    connect(address.replace("<password>", "p%2Fw").replace("<service>", "main"))


def test_the_access_list_of_the_page_is_enough_for_a_batch_and_for_the_doctor(
    stage, setting, found, tmp_path
):
    (rule,) = re.findall(r"^ACL (SETUSER .*)$", PAGE, re.MULTILINE)
    with running(tmp_path / "redis", "--appendonly", "yes") as server:
        assert server.cli("acl", *rule.replace(">password", ">pw").split()) == "OK"
        setting(state_url=server.url.replace("redis://", "redis://llmbatch:pw@"))
        for run in ("first", "second"):
            manifest = stage.run(stage.dispatch(source=stage.items(5), reuse=True), run_id=run)
            assert manifest["counts"] == {"ok": 5}
        assert len(stage.service.arrivals()) == 5
        stop_run("d", "r", by="ann")
        assert stop_of("d", "r") is not None
        let_go_on("d", "r")
        assert parked() == []
        assert {one.level for one in found("state", "parked")} == {"ok"}
        assert "denied" not in server.cli("acl", "log")
        assert server.cli("acl", "log") == ""


def test_the_access_list_names_what_scripts_call_and_nothing_else():
    (rule,) = re.findall(r"^ACL SETUSER (.*)$", PAGE, re.MULTILINE)
    scripts = (ROOT / "airflow_provider_llmbatch/engine/state/redis/lua").glob("*.lua")
    called = {word for file in scripts for word in re.findall(r"redis\.call\('(\w+)'", file.read_text())}
    other = {"evalsha", "eval", "info", "config|get", "get", "set", "smembers", "srem"}
    granted = {word[1:] for word in rule.split() if word[0] == "+" and word[1] != "@"}
    assert granted == {word.lower() for word in called} | other
