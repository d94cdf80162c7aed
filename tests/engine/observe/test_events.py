from __future__ import annotations

import logging

import pytest

from airflow_provider_llmbatch.engine.observe.events import Event, Fanout, Pulse, RunEnded, RunStarted


class Recorder:
    def __init__(self) -> None:
        self.seen: list[Event] = []

    def on(self, event: Event) -> None:
        self.seen.append(event)


class Broken:
    def on(self, event: Event) -> None:
        raise ConnectionError("https://user:secret@metrics.example")


def test_every_sink_gets_every_event_in_order() -> None:
    first, second = Recorder(), Recorder()
    events: list[Event] = [RunStarted(items=3), RunEnded(state="complete")]
    fanout = Fanout([first, second])
    for event in events:
        fanout.on(event)
    assert first.seen == second.seen == events


def test_a_sink_that_fails_is_told_of_once_and_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    after = Recorder()
    fanout = Fanout([Broken(), after])
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            fanout.on(Pulse(waits_for="requests_per_minute"))
    assert len(after.seen) == 1000
    assert len(caplog.records) == 1
    assert "Broken failed on Pulse with ConnectionError" in caplog.text
    assert "secret" not in caplog.text
