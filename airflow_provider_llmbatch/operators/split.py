"""Split: cut a source into chunks by a token budget, and say what they will take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow.sdk import BaseOperator

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.operators import arguments, surroundings
from airflow_provider_llmbatch.operators.batch import ITEMS_FILE, item_lines, job_of, write_plan
from airflow_provider_llmbatch.operators.dispatch import MAX_FAILED
from airflow_provider_llmbatch.operators.fate import decided
from airflow_provider_llmbatch.operators.verbatim import Verbatim
from airflow_provider_llmbatch.settings import queue_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.job import Job
    from airflow_provider_llmbatch.engine.results.folder import Folder
    from airflow_provider_llmbatch.engine.summary import Plan

#: Tokens of a chunk, in and out.
TOKEN_BUDGET = 500_000
MAX_CHUNKS = 16

Strategy = Literal["sequential", "balanced"]
#: Where such tasks run, unless one names a queue.
QUEUE = queue_of("cpu_queue")


class LLMBatchSplitOperator(Verbatim, BaseOperator):
    """
    Cut a source into chunks and return a descriptor of each, for the dispatch operator's ``expand(chunk=…)``.

    Nothing is sent. The plan (items, tokens, money, time at the limits) is logged and stored as
    ``plan.json``; prompt, model and params must be those of the dispatch task.

    :param source: path or URL (JSONL, CSV, Parquet), or a list of rows.
    :param prompt: ``name@version``, a mapping with ``system`` and optionally ``user``, or ``rollout:<name>``.
    :param llm_conn_id: connection of type ``llmbatch``; it knows limits and prices.
    :param model: model that will be asked; the connection's when left out.
    :param token_budget: tokens of a chunk, in and out.
    :param max_chunks: most chunks, and so mapped tasks; the token budget is raised to keep to it.
    :param strategy: ``sequential`` fills one chunk after the other, ``balanced`` makes them alike.
    :param output_type: as for the dispatch task; its schema is part of every request.
    :param model_params: as for the dispatch task; ``max_tokens`` decides what is reserved.
    :param sample: only the first so many items.
    :param max_failed: share of the rows, from 0 to 1, that may be broken.
    :param plan_only: draw the plan and hand out no chunks, so that mapped tasks after it are skipped.
    :param result_path: folder of the plan; one per task and run when left out.
    :param sql: instead of a source: a SELECT with an ORDER BY. Its rows are stored beside the plan, so that
        all chunks see the same ones; columns mean what they mean in CSV.
    :param sql_conn_id: connection of its database.
    :param sql_key: its column that becomes the items' id.
    :param queue: queue of the worker; ``[llmbatch] cpu_queue`` when left out.
    """

    template_fields: Sequence[str] = (
        "source",
        "prompt",
        "llm_conn_id",
        "model",
        "token_budget",
        "max_chunks",
        "strategy",
        "model_params",
        "sample",
        "max_failed",
        "plan_only",
        "result_path",
        "sql",
        "sql_conn_id",
        "sql_key",
    )
    ui_color = "#e4ecf0"

    def __init__(
        self,
        *,
        prompt: str | Mapping[str, str],
        source: str | Sequence[Mapping[str, Any]] | None = None,
        llm_conn_id: str = "llmbatch_default",
        model: str | None = None,
        token_budget: int | str = TOKEN_BUDGET,
        max_chunks: int | str = MAX_CHUNKS,
        strategy: Strategy = "sequential",
        output_type: Any = None,
        model_params: Mapping[str, Any] | None = None,
        sample: int | str | None = None,
        max_failed: float | str = MAX_FAILED,
        plan_only: bool | str = False,
        result_path: str | None = None,
        sql: str | None = None,
        sql_conn_id: str | None = None,
        sql_key: str = "id",
        queue: str = QUEUE,
        **kwargs: Any,
    ) -> None:
        super().__init__(queue=queue, **kwargs)
        self.source = source
        self.prompt = prompt
        self.llm_conn_id = llm_conn_id
        self.model = model
        self.token_budget = token_budget
        self.max_chunks = max_chunks
        self.strategy = strategy
        self.output_type = output_type
        self.model_params = model_params
        self.sample = sample
        self.max_failed = max_failed
        self.plan_only = plan_only
        self.result_path = result_path
        self.sql = sql
        self.sql_conn_id = sql_conn_id
        self.sql_key = sql_key

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Split, and return the chunk descriptors."""
        with decided():
            return self._split(context)

    def _split(self, context: Context) -> list[dict[str, Any]]:
        from airflow_provider_llmbatch.engine.locations import is_local
        from airflow_provider_llmbatch.engine.run import plan
        from airflow_provider_llmbatch.operators.storage import open_folder
        from airflow_provider_llmbatch.settings import load_settings

        settings = load_settings()
        path = arguments.result_location(self.result_path, context, settings, apart=True)
        if is_local(path):
            surroundings.refuse_other_hosts(settings, f"The plan's path {path}")
        folder = open_folder(path)
        job = job_of(
            context,
            settings,
            source=self._source(folder),
            prompt=self.prompt,
            llm_conn_id=self.llm_conn_id,
            model=self.model,
            output_type=self.output_type,
            model_params=self.model_params,
            result_path=path,
            sample=self.sample,
            max_failed=self.max_failed,
        )
        drawn = plan(
            job,
            token_budget=arguments.whole_number("token_budget", self.token_budget),
            max_chunks=arguments.whole_number("max_chunks", self.max_chunks),
            strategy=arguments.choice("strategy", self.strategy, get_args(Strategy)),
            note=self.log.info,
        )
        self._tell(job, drawn)
        chunks = write_plan(folder, drawn)
        if arguments.yes_or_no("plan_only", self.plan_only):
            self.log.info("plan_only is set, so nothing is dispatched. The plan: %s", chunks[0]["plan"])
            return []
        return chunks

    def _source(self, folder: Folder) -> str:
        """Return where the items lie; rows of XCom or a database are stored, so that all chunks find them."""
        source, sql = arguments.rows_or_path(self.source), arguments.optional_text(self.sql)
        if (source is None) == (sql is None):
            raise ConfigurationError(
                "source is empty; give a path or URL, a list of rows, or sql."
                if sql is None
                else "source and sql are both set; the items come from one of them."
            )
        if isinstance(source, str):
            return source
        lines = item_lines(source or ()) if sql is None else self._queried(sql)
        folder.put(ITEMS_FILE, lines, replace=True)
        return f"{folder.uri}/{ITEMS_FILE}"

    def _queried(self, sql: str) -> Iterator[bytes]:
        from airflow_provider_llmbatch.operators.sql_source import query_lines

        conn_id = arguments.optional_text(self.sql_conn_id)
        if conn_id is None:
            raise ConfigurationError(
                "sql is set and sql_conn_id is not; name the connection of its database."
            )
        return query_lines(sql, conn_id, str(self.sql_key))

    def _tell(self, job: Job, drawn: Plan) -> None:
        from airflow_provider_llmbatch.engine.split import explain

        money = drawn.estimate
        usd = (
            "unpriced"
            if money.usd is None
            else f"${money.usd:.4f} (${money.usd_low:.4f} to ${money.usd_high:.4f})"
        )
        broken = f" ({drawn.bad_items:,} rows are none, and end unrendered)" if drawn.bad_items else ""
        self.log.info(
            "%s items%s in %s; %s tokens in, %s reserved for output; %s. %s",
            f"{drawn.items:,}",
            broken,
            "1 chunk" if len(drawn.chunks) == 1 else f"{len(drawn.chunks)} chunks",
            f"{drawn.prompt_tokens:,}",
            f"{drawn.output_tokens:,}",
            usd,
            explain(drawn, [job.limits]),
        )
