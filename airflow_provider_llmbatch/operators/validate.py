"""Validate: check results that are there against a schema, without a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.operators import arguments, surroundings
from airflow_provider_llmbatch.operators.assets import made, tell_outlets
from airflow_provider_llmbatch.operators.dispatch import MAX_FAILED
from airflow_provider_llmbatch.operators.fate import decided, judge
from airflow_provider_llmbatch.settings import queue_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.recheck import Portion

#: Where such tasks run, unless one names a queue.
QUEUE = queue_of("cpu_queue")


class LLMBatchValidateOperator(BaseOperator):
    """
    Check existing results against a schema, and write them anew with the outcomes that follow.

    Nothing is sent and nothing is paid, so the usage and cost of its manifest are nothing. Rows without a
    reply, replies that were cut, and what a person decided stay as they are; the results that were read stay
    too. Returns a manifest, or one for each chunk where there are several.

    :param output_type: what an output must be: see :class:`.dispatch.LLMBatchDispatchOperator`.
    :param manifest: what a dispatch task returned, or all its mapped instances; or the manifest of a batch
        of Airflow's ``common.ai``.
    :param path: instead of a manifest: a folder of results, or the JSONL file of a ``common.ai`` batch.
    :param result_path: folder of the checked rows; one per task and run when left out.
    :param max_failed: share of the items, from 0 to 1, that may end badly before the task fails.
    :param queue: queue of the worker; ``[llmbatch] cpu_queue`` when left out.
    """

    template_fields: Sequence[str] = ("manifest", "path", "result_path", "max_failed")
    ui_color = "#eaf0dc"

    def __init__(
        self,
        *,
        output_type: Any,
        manifest: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        path: str | None = None,
        result_path: str | None = None,
        max_failed: float | str = MAX_FAILED,
        queue: str = QUEUE,
        **kwargs: Any,
    ) -> None:
        super().__init__(queue=queue, **kwargs)
        self.output_type = output_type
        self.manifest = manifest
        self.path = path
        self.result_path = result_path
        self.max_failed = max_failed

    def execute(self, context: Context) -> dict[str, Any] | list[dict[str, Any]]:
        """Check, and return the manifest or manifests."""
        with decided():
            return self._validate(context)

    def _validate(self, context: Context) -> dict[str, Any] | list[dict[str, Any]]:
        from airflow_provider_llmbatch.engine.clocks import Clocks
        from airflow_provider_llmbatch.engine.locations import is_local
        from airflow_provider_llmbatch.engine.recheck import recheck
        from airflow_provider_llmbatch.engine.validate.schema import output_schema
        from airflow_provider_llmbatch.operators.storage import open_folder
        from airflow_provider_llmbatch.settings import load_settings

        settings = load_settings()
        most_failed = arguments.share("max_failed", self.max_failed)
        schema = output_schema(self.output_type)
        path = arguments.result_location(self.result_path, context, settings, apart=False)
        host = surroundings.host_of(settings) if is_local(path) else ""
        folder, clocks = open_folder(path), Clocks()
        checked = [recheck(portion, schema, folder, host=host, clocks=clocks) for portion in self._portions()]
        values = [manifest.to_json() for manifest in checked]
        value = values[0] if len(values) == 1 else values
        # Reports that follow a failure need the manifests too.
        context["ti"].xcom_push(key="return_value", value=value)
        for manifest in checked:
            judge(manifest, most_failed)
        tell_outlets(self, context, path, made(checked))
        return value

    def _portions(self) -> Iterator[Portion]:
        from airflow_provider_llmbatch.engine.recheck import of_folder
        from airflow_provider_llmbatch.operators.storage import open_folder

        path = arguments.optional_text(self.path)
        if bool(self.manifest) == (path is not None):
            raise ConfigurationError(
                "Exactly one of manifest and path must be set; say which results to check."
            )
        if isinstance(self.manifest, Mapping) and "result_uri" in self.manifest:
            yield _landed(str(self.manifest["result_uri"]))
        elif path is None:
            for one in arguments.manifests_of("manifest", self.manifest):
                yield from of_folder(open_folder(one.result_path, read_only=True), [one.chunk])
        elif path.endswith(".jsonl"):
            yield _landed(arguments.absolute("path", path))
        else:
            yield from of_folder(open_folder(arguments.absolute("path", path), read_only=True))


def _landed(uri: str) -> Portion:
    """Return the rows of a ``common.ai`` batch, at a URI as Airflow writes them: it may name a connection."""
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_llmbatch.engine.recheck import of_common_ai

    landed = ObjectStoragePath(uri)
    return of_common_ai(uri, lambda: landed.open("rb"))  # type: ignore[no-untyped-call]
