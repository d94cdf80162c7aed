"""Find the rollout that a task's prompt names, as ``rollout:<name>``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.operators import arguments, surroundings
from airflow_provider_llmbatch.operators.places import rollout_folder

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.rollout.steps import Steps
    from airflow_provider_llmbatch.engine.trial import Trial
    from airflow_provider_llmbatch.settings import Settings

PREFIX = "rollout:"


def trial_of(prompt: Any, context: Context, settings: Settings) -> Trial | None:
    """
    Return the rollout that a prompt names; None when it names none.

    :param prompt: ``rollout:<name>``, of another DAG ``rollout:<dag>/<name>``; with ``:base`` or
        ``:candidate`` behind it, all items get that arm.
    :raises ConfigurationError: for a name that cannot be read.
    :raises InputError: when the rollout was not opened, or its prompts are not those that it was opened with.
    """
    if not isinstance(prompt, str) or not prompt.startswith(PREFIX):
        return None
    from airflow_provider_llmbatch.engine.trial import Trial

    dag, name, arm = _read(prompt, context)
    steps = open_steps(dag, name, settings)
    terms = steps.standing().terms
    base, candidate = (
        arguments.prompt_of(str(version.prompt), context, settings)
        for version in (terms.base, terms.candidate)
    )
    return Trial(steps, base, candidate, arm=arm)


def _read(prompt: str, context: Context) -> tuple[str, str, Any]:
    from airflow_provider_llmbatch.engine.rollout.terms import check_name
    from airflow_provider_llmbatch.engine.rollout.variant import ARMS

    named, _, arm = prompt.removeprefix(PREFIX).partition(":")
    dag, _, name = named.rpartition("/")
    if arm and arm not in ARMS:
        raise ConfigurationError(
            f"prompt is {prompt!r}; behind the rollout's name stands :base, :candidate, or nothing."
        )
    return dag or arguments.run_ref(context).dag, check_name(name), arm or None


def open_steps(dag: str, name: str, settings: Settings) -> Steps:
    """Return the steps of a rollout, below ``[llmbatch] results_path``."""
    from airflow_provider_llmbatch.engine.locations import is_local
    from airflow_provider_llmbatch.engine.rollout.steps import Steps
    from airflow_provider_llmbatch.operators.storage import open_folder

    path = rollout_folder(settings.results_path, dag, name)
    if is_local(path):
        surroundings.refuse_other_hosts(settings, f"The rollout's path {path}")
    return Steps(open_folder(path))


@contextmanager
def grade_extra() -> Iterator[None]:
    """
    Say what to install where libraries of the ``grade`` extra are missing.

    :raises ConfigurationError: in place of an import that failed.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(
            f"Grades need numpy and scipy ({error}): install airflow-provider-llmbatch[grade] on the workers."
        ) from error
