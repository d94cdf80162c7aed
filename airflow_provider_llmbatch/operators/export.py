"""Export: results into one file, or into a table."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow.sdk import BaseOperator

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.operators import arguments
from airflow_provider_llmbatch.operators.assets import tell_outlets
from airflow_provider_llmbatch.operators.fate import decided
from airflow_provider_llmbatch.operators.sql_source import database_hook
from airflow_provider_llmbatch.settings import queue_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.items import Outcome, Result
    from airflow_provider_llmbatch.engine.sink.columns import Column

Format = Literal["parquet", "csv", "jsonl", "common_ai"]
#: Where such tasks run, unless one names a queue.
QUEUE = queue_of("cpu_queue")


class LLMBatchExportOperator(BaseOperator):
    """
    Write the results of a batch into a file, a table, or both; returns where they are and how many.

    A table's rows have ``id, index, outcome, output`` (as JSON), ``text`` (the output where it is text),
    ``error, error_class, model, prompt, attempts, prompt_tokens, completion_tokens, usd, metadata``, and with
    ``output_type`` a column for each plain field of the outputs: ``output.score``, in a database
    ``output_score``. Doing it again replaces what was there, and adds nothing.

    :param manifests: what dispatch or validate tasks returned, one or all mapped instances.
    :param path: file to write, on a disk or at a URL; ``results.<format>`` in the task's own folder when
        neither ``path`` nor ``table`` is set.
    :param format: ``parquet``, ``csv`` (texts that a spreadsheet would take for formulas are made plain),
        ``jsonl`` (whole rows) or ``common_ai`` (JSONL with the rows of Airflow's own batches); when left out,
        as the path ends, else ``parquet``.
    :param table: table to write, with a column ``id``; of the others those are filled that are there.
    :param sql_conn_id: connection of the table's database.
    :param outcomes: only items that ended so, such as ``["ok", "edited", "accepted"]``; all when left out.
    :param output_type: as for the dispatch task; tells which fields get columns.
    :param queue: queue of the worker; ``[llmbatch] cpu_queue`` when left out.
    """

    template_fields: Sequence[str] = ("manifests", "path", "format", "table", "sql_conn_id", "outcomes")
    ui_color = "#e4f0ee"

    def __init__(
        self,
        *,
        manifests: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        path: str | None = None,
        format: Format | None = None,
        table: str | None = None,
        sql_conn_id: str | None = None,
        outcomes: Sequence[str] | None = None,
        output_type: Any = None,
        queue: str = QUEUE,
        **kwargs: Any,
    ) -> None:
        super().__init__(queue=queue, **kwargs)
        self.manifests = manifests
        self.path = path
        self.format = format
        self.table = table
        self.sql_conn_id = sql_conn_id
        self.outcomes = outcomes
        self.output_type = output_type

    def execute(self, context: Context) -> dict[str, Any]:
        """Export, and return where it went."""
        with decided():
            exported = self._export(context)
        where = exported.get("path") or f"table://{exported['table']}"
        tell_outlets(self, context, where, exported)
        return exported

    def _export(self, context: Context) -> dict[str, Any]:
        from airflow_provider_llmbatch.engine.sink.columns import columns
        from airflow_provider_llmbatch.engine.validate.schema import output_schema

        table, conn_id = arguments.optional_text(self.table), arguments.optional_text(self.sql_conn_id)
        if (table is None) != (conn_id is None):
            missing, given = ("sql_conn_id", "table") if conn_id is None else ("table", "sql_conn_id")
            raise ConfigurationError(f"{given} is set and {missing} is not; a table needs both.")
        known = columns(output_schema(self.output_type).document)
        exported: dict[str, Any] = {}
        if table is None or arguments.optional_text(self.path) is not None:
            exported |= self._to_file(context, known)
        if table is not None and conn_id is not None:
            exported |= self._to_table(table, conn_id, known)
        self.log.info("Exported %s", exported)
        return exported

    def _to_file(self, context: Context, known: Sequence[Column]) -> dict[str, Any]:
        from airflow_provider_llmbatch.engine.export import to_file
        from airflow_provider_llmbatch.operators.storage import open_folder
        from airflow_provider_llmbatch.settings import load_settings

        parent, name = posixpath.split(arguments.optional_text(self.path) or "")
        ending = name.rpartition(".")[2].lower()
        chosen = arguments.optional_text(self.format) or (ending if ending in get_args(Format) else "parquet")
        form = arguments.choice("format", chosen, get_args(Format))
        if name:
            arguments.absolute("path", parent)
        elif parent:
            raise ConfigurationError(f"path is {self.path!r}, a folder; add the name of the file to write.")
        else:
            parent = arguments.own_folder(context, load_settings(), apart=True)
            name = f"results.{'jsonl' if form == 'common_ai' else form}"
        folder = open_folder(parent)
        count = to_file(self._results(), folder, name, form=form, columns=known)
        return {"path": f"{folder.uri}/{name}", "format": form, "rows": count}

    def _to_table(self, table: str, conn_id: str, known: Sequence[Column]) -> dict[str, Any]:
        from airflow_provider_llmbatch.engine.sink.table import upsert

        hook = database_hook(conn_id)
        with closing(hook.get_conn()) as connection:
            if hook.supports_autocommit:
                hook.set_autocommit(connection, False)
            count = upsert(
                connection,
                table,
                self._results(),
                known,
                placeholder=hook.placeholder,
                quote=hook.escape_word_format.format,
            )
        return {"table": table, "rows": count}

    def _results(self) -> Iterator[Result]:
        from airflow_provider_llmbatch.engine.export import results_of
        from airflow_provider_llmbatch.operators.storage import open_folder

        chunks: dict[str, set[int]] = {}
        for manifest in arguments.manifests_of("manifests", self.manifests):
            chunks.setdefault(manifest.result_path, set()).add(manifest.chunk)
        places = [(open_folder(path, read_only=True), numbers) for path, numbers in chunks.items()]
        return results_of(places, self._kept())

    def _kept(self) -> list[Outcome] | None:
        from airflow_provider_llmbatch.engine.items import Outcome

        if not self.outcomes:
            return None
        given = [self.outcomes] if isinstance(self.outcomes, str) else self.outcomes
        return [Outcome(arguments.choice("outcomes", outcome, list(Outcome))) for outcome in given]
