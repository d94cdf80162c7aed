"""The rows that ended badly, read back from where they were stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.items import Result
    from airflow_provider_llmbatch.engine.summary import Manifest


def failed_rows(manifests: Sequence[Manifest]) -> Iterator[Result]:
    """Yield the failed rows of dispatches, in index order, as long as somebody reads them."""
    from airflow_provider_llmbatch.engine.items import Outcome
    from airflow_provider_llmbatch.engine.results.read import results
    from airflow_provider_llmbatch.operators.storage import open_folder

    bad = [outcome for outcome in Outcome if not outcome.is_good]
    chunks: dict[str, list[int]] = {}
    for manifest in manifests:
        chunks.setdefault(manifest.result_path, []).append(manifest.chunk)
    for path, numbers in chunks.items():
        yield from results(open_folder(path, read_only=True), keep=bad, chunks=numbers)
