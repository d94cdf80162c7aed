"""What lies on one host's disk is refused before anything is paid, unless the installation says it may."""

from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowFailException

CELERY = "airflow.providers.celery.executors.celery_executor.CeleryExecutor"


def settings(monkeypatch, **options: str) -> None:
    for name, value in options.items():
        monkeypatch.setenv(f"AIRFLOW__LLMBATCH__{name.upper()}", value)


@pytest.mark.parametrize("make", ["split", "dispatch"])
@pytest.mark.parametrize(
    "executor",
    [
        "CeleryExecutor",
        CELERY,
        "LocalExecutor, KubernetesExecutor",
        f"LocalExecutor,far:{CELERY}",
        "LocalExecutor;team-a=CeleryExecutor",
    ],
)
def test_a_local_path_is_refused_where_tasks_run_on_several_hosts(stage, monkeypatch, make, executor):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    with pytest.raises(AirflowFailException) as failed:
        stage.run(getattr(stage, make)(source=stage.items(2)))
    message = str(failed.value)
    assert str(stage.results_path) in message
    assert "the executor is" in message
    for words in ("state_url", "results_path", "single_host", "shared_filesystem"):
        assert words in message
    assert stage.service.arrivals() == []


@pytest.mark.parametrize("said", ["single_host", "shared_filesystem"])
def test_an_installation_that_says_it_is_fine_is_believed(stage, monkeypatch, said):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    settings(monkeypatch, **{said: "True"})
    assert stage.run(stage.dispatch(source=stage.items(2)))["counts"] == {"ok": 2}


def test_a_remote_result_path_alone_does_not_lift_the_guard_of_the_state(stage, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    settings(monkeypatch, results_path="memory://one-host/results")
    with pytest.raises(AirflowFailException, match="State in a SQLite file serves one host"):
        stage.run(stage.dispatch(source=stage.items(2)))
    assert stage.service.arrivals() == []


def test_several_local_executors_are_one_host(stage, monkeypatch):
    executors = "LocalExecutor, near:LocalExecutor;team-a=airflow.executors.local_executor.LocalExecutor"
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executors)
    assert stage.run(stage.dispatch(source=stage.items(2)))["counts"] == {"ok": 2}


def test_a_pod_is_a_host_of_its_own_whatever_executor_it_is_told_of(stage, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "LocalExecutor")
    monkeypatch.setenv("AIRFLOW_IS_K8S_EXECUTOR_POD", "True")
    with pytest.raises(AirflowFailException, match="the executor is KubernetesExecutor"):
        stage.run(stage.dispatch(source=stage.items(2)))
    assert stage.service.arrivals() == []


@pytest.fixture
def other_host(monkeypatch):
    """Return a function that moves this process to another host."""
    return lambda: monkeypatch.setattr("socket.gethostname", lambda: "another-host")


def test_the_state_file_of_another_host_is_refused(stage, monkeypatch, other_host):
    stage.run(stage.dispatch(source=stage.items(2)))
    other_host()
    settings(monkeypatch, results_path=str(stage.folder / "fresh"))
    with pytest.raises(AirflowFailException) as failed:
        stage.run(stage.dispatch(source=stage.items(2)))
    message = str(failed.value)
    assert f"The state file {stage.folder}/state.db was made on host" in message
    assert "this is 'another-host'" in message
    assert "state_url" in message
    assert "single_host" in message
    assert len(stage.service.arrivals()) == 2


def test_the_results_of_another_host_are_refused(stage, monkeypatch, other_host):
    stage.run(stage.dispatch(source=stage.items(2)))
    other_host()
    settings(monkeypatch, state_url=f"sqlite:///{stage.folder}/fresh.db")
    with pytest.raises(AirflowFailException) as failed:
        stage.run(stage.dispatch(source=stage.items(2)))
    message = str(failed.value)
    assert f"wrote results to {stage.results_path}/d/r/t, this is 'another-host'" in message
    assert "results_path" in message
    assert "shared_filesystem" in message
    assert len(stage.service.arrivals()) == 2


@pytest.mark.parametrize("said", ["single_host", "shared_filesystem"])
def test_another_name_of_the_same_disk_is_fine_when_the_installation_says_so(
    stage, monkeypatch, other_host, said
):
    stage.run(stage.dispatch(source=stage.items(2)))
    other_host()
    settings(monkeypatch, **{said: "True"})
    assert stage.run(stage.dispatch(source=stage.items(2)))["resumed"] == 2
