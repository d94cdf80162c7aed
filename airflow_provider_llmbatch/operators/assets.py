"""
Asset events: whoever is scheduled on an asset learns where the results are.

A task that is given outlets says in each event what it has made. A DAG that shall run when a batch is done
names the asset as its schedule and reads ``triggering_asset_events``:

.. code-block:: python

    LLMBatchExportOperator(..., outlets=[Asset("insights")])

    with DAG("weekly_review", schedule=[Asset("insights")], ...):

        @task
        def look(triggering_asset_events):
            for event in triggering_asset_events[Asset("insights")]:
                print(event.extra["path"], event.extra["rows"])

A mapped dispatch makes one event for each chunk; give the outlet to the export or report task that follows
to make one for the whole batch. With an :class:`~airflow.sdk.AssetAlias` as outlet the event belongs to an
asset whose URI is where the results are.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_llmbatch.engine.items import Cost

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_provider_llmbatch.engine.summary import Manifest


def tell_outlets(task: BaseOperator, context: Context, uri: str, extra: Mapping[str, Any]) -> None:
    """
    Say in the events of a task's outlets what it has made.

    :param uri: where the results are, for outlets that are aliases.
    :param extra: what the events say; small, and JSON.
    """
    from airflow.sdk import Asset, AssetAlias

    events = context.get("outlet_events")
    if events is None:
        return
    for outlet in task.outlets:
        if isinstance(outlet, AssetAlias):
            # A URI of an asset is ASCII without spaces; what is paid must not fail for the name of a folder.
            place = quote(uri if "://" in uri else f"file://{uri}", safe=string.punctuation)
            events[outlet].add(Asset(name=place, uri=place), extra=dict(extra))
        elif isinstance(outlet, Asset):
            events[outlet].extra.update(extra)


def made(manifests: Sequence[Manifest]) -> dict[str, Any]:
    """Return what an event says of the manifests of one folder."""
    cost = sum((manifest.cost for manifest in manifests), Cost())
    return {
        "result_path": manifests[0].result_path,
        "chunks": len(manifests),
        "items": sum(manifest.items for manifest in manifests),
        "good": sum(manifest.good for manifest in manifests),
        "usd": None if cost.unpriced else format(cost.usd, "f"),
    }
