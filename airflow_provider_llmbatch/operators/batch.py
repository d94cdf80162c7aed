"""What the split and the dispatch operator have in common: a job, and the plan between them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_llmbatch.errors import ConfigurationError, InputError, LLMBatchError
from airflow_provider_llmbatch.operators import arguments, surroundings
from airflow_provider_llmbatch.operators.routes import End, Table
from airflow_provider_llmbatch.operators.trial import trial_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.connection import ConnectionSettings
    from airflow_provider_llmbatch.engine.job import Asked, Job
    from airflow_provider_llmbatch.engine.results.folder import Folder
    from airflow_provider_llmbatch.engine.summary import Plan
    from airflow_provider_llmbatch.engine.trial import Trial
    from airflow_provider_llmbatch.settings import Settings

#: Files that a split leaves in its folder.
PLAN_FILE = "plan.json"
ITEMS_FILE = "items.jsonl"


def job_of(
    context: Context,
    settings: Settings,
    *,
    source: str | Sequence[Mapping[str, Any]],
    prompt: Any,
    llm_conn_id: str,
    model: str | None,
    output_type: Any,
    model_params: Any,
    result_path: str,
    sample: Any,
    max_failed: Any,
    routes: Table | None = None,
    **further: Any,
) -> Job:
    """
    Read arguments, connection, prompt and source, and make a job of them.

    :param routes: the endpoints that items may go to; None knows one.
    :param further: fields of the job that only one operator has.
    :raises ConfigurationError: naming the argument, its value and the remedy.
    :raises InputError: for a source or prompt that cannot be used.
    """
    from airflow_provider_llmbatch.engine.job import Job
    from airflow_provider_llmbatch.engine.locations import is_local
    from airflow_provider_llmbatch.engine.tokens.price import read_prices
    from airflow_provider_llmbatch.engine.validate.schema import output_schema
    from airflow_provider_llmbatch.operators.storage import filesystem_of, open_source

    trial = trial_of(prompt, context, settings)
    found = trial.prompt if trial else arguments.prompt_of(prompt, context, settings)
    if trial:
        _refuse_two_schemas(trial, output_type)
    ends = asked_of(routes, llm_conn_id, arguments.optional_text(model))
    first = ends[next(iter(ends))]
    given = source if not isinstance(source, str) else arguments.source_location(source, context)
    return Job(
        source=open_source(given),
        prompt=found,
        trial=trial,
        connection=first.connection,
        model=first.model,
        routes=routes.routes if routes else None,
        asked=ends if routes else {},
        schema=output_schema(output_type if output_type is not None else found.output_schema),
        result_path=result_path,
        filesystem=filesystem_of(result_path),
        run=arguments.run_ref(context),
        params=arguments.mapping("model_params", model_params),
        prices=read_prices(settings.prices_path) if settings.prices_path else {},
        default_encoding=settings.default_encoding,
        sample=arguments.optional_whole_number("sample", sample),
        max_failed=arguments.share("max_failed", max_failed),
        host=surroundings.host_of(settings) if is_local(result_path) else "",
        reread=read_again,
        **further,
    )


def read_again(conn_id: str) -> ConnectionSettings:
    """
    Read a connection once more while a run goes on: its key may have been rotated.

    :raises ConfigurationError: when it cannot be read or used.
    """
    from airflow_provider_llmbatch.hooks.llm import LLMBatchHook

    try:
        return LLMBatchHook(conn_id).settings()
    except LLMBatchError:
        raise
    except Exception as error:
        # Whatever keeps Airflow from giving it out: the run goes on with what it has.
        raise ConfigurationError(f"Connection {conn_id!r} cannot be read: {type(error).__name__}.") from error


def asked_of(routes: Table | None, llm_conn_id: str, model: str | None) -> dict[str, Asked]:
    """
    Return whom a task asks, by the name of the endpoint; the first is its default.

    :raises ConfigurationError: for a connection that cannot be used, or an endpoint without a model.
    """
    from airflow_provider_llmbatch.engine.job import ONLY, Asked
    from airflow_provider_llmbatch.hooks.llm import LLMBatchHook

    found = {}
    for name, end in (routes.ends if routes else {ONLY: End(None, None)}).items():
        conn_id = end.llm_conn_id or llm_conn_id
        connection = LLMBatchHook(conn_id).settings()
        asked = end.model or model or connection.model or connection.azure_deployment
        if not asked:
            raise ConfigurationError(
                f"Neither the task nor connection {conn_id!r} names a model; set 'model' in one of them."
            )
        found[name] = Asked(connection=connection, model=asked)
    return found


def _refuse_two_schemas(trial: Trial, output_type: Any) -> None:
    """Refuse versions whose outputs would be checked alike though they differ."""
    base, candidate = (trial.prompts[arm].output_schema for arm in ("base", "candidate"))
    if output_type is None and base != candidate:
        raise ConfigurationError(
            f"The prompts of rollout {trial.terms.name!r} have different output schemas; their outputs "
            "cannot be compared. Give both the same, or set output_type."
        )


def item_lines(items: Iterable[Any]) -> Iterator[bytes]:
    """
    Yield items as the lines of a source file; a plain text becomes a prompt.

    :raises InputError: for what JSON cannot hold.
    """
    for number, item in enumerate(items):
        row = {"prompt": item} if isinstance(item, str) else item
        try:
            yield json.dumps(row, ensure_ascii=True, allow_nan=False).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise InputError(
                f"Item {number} cannot be written as JSON: {error}. Use texts, numbers, lists and mappings."
            ) from error


def write_plan(folder: Folder, plan: Plan) -> list[dict[str, Any]]:
    """Store a plan and return a descriptor for each of its chunks."""
    content = json.dumps(plan.to_json(), ensure_ascii=False, indent=1).encode()
    folder.put(PLAN_FILE, iter([content]), replace=True)
    sha = hashlib.sha256(content).hexdigest()
    return [{"plan": f"{folder.uri}/{PLAN_FILE}", "chunk": chunk.number, "sha": sha} for chunk in plan.chunks]


def read_plan(descriptor: Any) -> Plan:
    """
    Read the plan that a chunk descriptor points to.

    :raises InputError: when it is not there, or another one is.
    """
    from airflow_provider_llmbatch.engine.summary import Plan
    from airflow_provider_llmbatch.operators.storage import open_folder

    if not isinstance(descriptor, Mapping) or not {"plan", "chunk", "sha"} <= set(descriptor):
        raise InputError(f"{str(descriptor)[:80]!r} is no chunk; use what LLMBatchSplitOperator returns.")
    path = str(descriptor["plan"])
    parent, _, name = path.rpartition("/")
    try:
        with open_folder(parent, read_only=True).open(name) as file:
            content = file.read()
    except OSError as error:
        raise InputError(
            f"The plan {path} cannot be read ({error.strerror or error}); is [llmbatch] results_path on "
            "storage that all workers reach? If so, clear the split task."
        ) from error
    if hashlib.sha256(content).hexdigest() != descriptor["sha"]:
        raise InputError(
            f"The plan {path} is not the one this chunk belongs to; clear the split task as well."
        )
    return Plan.from_json(json.loads(content))
