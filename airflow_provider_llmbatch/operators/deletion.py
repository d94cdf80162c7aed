"""
Delete results for good: those of a run, those in a folder, or those of a person.

Only what has ended may be deleted, and only the caller can know that: nobody may write to the folders
meanwhile. What lies outside of them stays: Airflow's logs and XComs (which hold counts), tables that were
exported to, and the versions that a bucket keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from airflow_provider_llmbatch.errors import InputError
from airflow_provider_llmbatch.operators import places, surroundings
from airflow_provider_llmbatch.operators.bridge import Bridge
from airflow_provider_llmbatch.operators.storage import filesystem_of, open_folder

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.erasing import Erased
    from airflow_provider_llmbatch.engine.results.erase import Wanted
    from airflow_provider_llmbatch.engine.results.folder import Folder
    from airflow_provider_llmbatch.settings import Settings


def places_of(settings: Settings, dag_id: str, run_id: str) -> tuple[list[str], list[str]]:
    """
    Return the folders of a run below ``results_path``, and other places where its tasks kept results.

    :raises StoreError: when they cannot be listed or read.
    """
    own = places.run_folder(settings.results_path, dag_id, run_id)
    folders = folders_below(own)
    notes = (places.read_note(open_folder(folder, read_only=True)) for folder in folders)
    elsewhere = {note.result_path for note in notes if note is not None} - set(folders)
    return folders, sorted(place for place in elsewhere if not place.startswith(f"{own}/"))


def folders_below(location: str) -> list[str]:
    """Return the folders at and below a path or URL that hold files."""
    from airflow_provider_llmbatch.engine.results import tree

    return tree.folders_below(location, filesystem=filesystem_of(location))


def runs_of(folders: Iterable[str]) -> set[tuple[str, str]]:
    """Return DAG and run of what wrote the results of some folders."""
    from airflow_provider_llmbatch.engine.results.erase import runs_in

    return {run for folder in folders for run in runs_in(open_folder(folder, read_only=True))}


def delete(
    settings: Settings, location: str, folders: Iterable[str], *, dry: bool = False
) -> Iterator[Erased]:
    """
    Delete every file of some folders, and yield them.

    Answers in them are not reused any more, whatever has claimed them.

    :param location: path or URL that all of them lie below.
    :param dry: delete nothing.
    :raises StoreError: when storage or state cannot be reached.
    """
    from airflow_provider_llmbatch.engine.erasing import delete_folder
    from airflow_provider_llmbatch.engine.results.tree import remove_empty

    opened = [open_folder(folder, read_only=True) for folder in folders]
    if not dry and opened:
        _forget(settings, [folder.uri for folder in opened])
    for folder in opened:
        yield from delete_folder(folder, dry=dry)
    if not dry:
        remove_empty(location)


def strike_queues(settings: Settings, dag_id: str, run_id: str) -> None:
    """Take the review queues of a deleted run off the console's list."""
    from airflow_provider_llmbatch.engine.review.inbox import Inbox

    inbox = Inbox(open_folder(places.inbox_folder(settings.results_path), read_only=True))
    for post in inbox.posts("open", "done"):
        if (post.dag_id, post.run_id) == (dag_id, run_id):
            inbox.remove(post)


def erase(folders: Iterable[str], wanted: Wanted, *, dry: bool = False) -> Iterator[Erased]:
    """
    Take items out of some folders, and yield the files that change.

    :param dry: change nothing.
    :raises InputError: when none of the folders knows such an item.
    :raises StoreError: for a file that cannot be read or written.
    """
    from airflow_provider_llmbatch.engine.erasing import erase_items, find_items

    opened: list[Folder] = [open_folder(folder, read_only=True) for folder in folders]
    found = {id for folder in opened for id in find_items(folder, wanted)} | wanted.ids
    if not found:
        raise InputError("None of these results has metadata with such a value; nothing was erased.")
    yield from erase_items(opened, found, dry=dry)


def _forget(settings: Settings, paths: list[str]) -> None:
    async def main() -> None:
        state = surroundings.open_state(settings)
        try:
            claims = surroundings.open_claims(state)
            for path in paths:
                await claims.forget_folder(path)
        finally:
            await state.close()

    Bridge[None]().run(main)
