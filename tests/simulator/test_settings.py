"""Settings say what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.simulator.__main__ import read_settings
from airflow_provider_llmbatch.simulator.settings import SimulatedKey, SimulatorSettings, read_keys


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rpm": 0}, "rpm must be above 0, got 0"),
        ({"window_s": -1.0}, "window_s must be above 0"),
        ({"burst": 0.0}, "burst must be above 0 or left out"),
        ({"latency_s": -0.1}, "latency_s must be 0 or more"),
        ({"jitter": 1.5}, "jitter must lie between 0 and 1, got 1.5"),
        ({"window_s": 1.0, "quantum_s": 2.0}, "must not be longer than window_s"),
        ({"keys": read_keys("a=x,b=x")}, "every id and every key may appear once"),
        ({"keys": read_keys("a=x,a=y")}, "every id and every key may appear once"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        SimulatorSettings(**settings)


def test_keys_may_share_an_account_and_hold_equals_signs() -> None:
    assert read_keys("a=sk-1,b@acme=sk-2=,c@acme=sk-3") == (
        SimulatedKey(id="a", key="sk-1", account="a"),
        SimulatedKey(id="b", key="sk-2=", account="acme"),
        SimulatedKey(id="c", key="sk-3", account="acme"),
    )


@pytest.mark.parametrize("text", ["a", "=sk-canary", "a=,b=sk-canary", "@x=sk-canary"])
def test_a_broken_list_of_keys_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ConfigurationError, match="part 1 must read id=key") as caught:
        read_keys(text)
    assert "canary" not in str(caught.value)


def test_a_key_is_not_part_of_what_settings_print() -> None:
    assert "canary" not in repr(SimulatorSettings(keys=read_keys("a=sk-canary")))


def test_the_command_line_reaches_every_setting() -> None:
    line = (
        "--host 0.0.0.0 --port 0 --rpm 6 --tpm 900 --latency 0.1 --jitter 0 --counts used --window 6 "
        "--quantum 2 --burst 3 --failed-count yes --per-model yes --keys a@b=c --models m-1,m-2 "
        "--model-window 8192 --count-tokens o200k --output-words 9"
    )
    assert read_settings(line.split()) == SimulatorSettings(
        host="0.0.0.0",
        port=0,
        rpm=6,
        tpm=900,
        latency_s=0.1,
        jitter=0.0,
        counts="used",
        window_s=6.0,
        quantum_s=2.0,
        burst=3.0,
        failed_counts=True,
        per_model=True,
        keys=(SimulatedKey(id="a", key="c", account="b"),),
        models=("m-1", "m-2"),
        model_window=8192,
        count_tokens="o200k",
        output_words=9,
    )
