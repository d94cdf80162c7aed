"""Find rollouts and their grades: what the console calls."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from airflow_provider_llmbatch.errors import InputError
from airflow_provider_llmbatch.operators.places import rollout_folder
from airflow_provider_llmbatch.operators.storage import filesystem_of, open_folder
from airflow_provider_llmbatch.settings import Settings

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.results.folder import Folder
    from airflow_provider_llmbatch.engine.rollout.sheet import Sheet


def dags_with_rollouts(settings: Settings) -> list[str]:
    """
    Return the DAGs that own rollouts.

    :raises StoreError: when they cannot be listed.
    """
    return _names(rollout_folder(settings.results_path))


def rollouts_of(settings: Settings, dag_id: str) -> list[str]:
    """
    Return the names of the rollouts of a DAG.

    :raises StoreError: when they cannot be listed.
    """
    return _names(rollout_folder(settings.results_path, dag_id))


def _names(place: str) -> list[str]:
    from airflow_provider_llmbatch.engine.results.tree import names_in

    return [unquote(name) for name in names_in(place, filesystem=filesystem_of(place))]


def folder_of(settings: Settings, dag_id: str, name: str) -> Folder:
    """Return the folder of a rollout, for a look at it."""
    return open_folder(rollout_folder(settings.results_path, dag_id, name), read_only=True)


def read_sheet(folder: Folder, name: str) -> Sheet:
    """
    Read the scores of a round.

    :raises InputError: when they are gone, or cannot be read.
    """
    from airflow_provider_llmbatch.engine.rollout.sheet import Sheet

    try:
        with folder.open(name) as file:
            return Sheet.read(file, f"{folder.uri}/{name}")
    except FileNotFoundError as error:
        raise InputError(f"{folder.uri}/{name} is gone; clear the grade task.") from error
