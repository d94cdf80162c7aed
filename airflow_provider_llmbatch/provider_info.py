"""What Airflow is told about the package: connection type, configuration, modules. Imports nothing."""

from __future__ import annotations

from typing import Any

PACKAGE = "airflow_provider_llmbatch"
INTEGRATION = "LLM batches"

_SINCE = "0.1.0"
_OPTIONAL_TEXT = {"type": ["string", "null"]}
_OPTIONAL_AMOUNT = {"type": ["integer", "null"], "minimum": 1}
_OPTIONAL_LIST = {"type": ["array", "null"], "items": {"type": "object"}}
_OPTIONAL_OBJECT = {"type": ["object", "null"]}


def _option(
    description: str, *, type: str = "string", example: str | None = None, default: str | None = None
) -> dict[str, Any]:
    return {
        "description": description,
        "version_added": _SINCE,
        "type": type,
        "example": example,
        "default": default,
    }


#: The options of ``[llmbatch]``; :mod:`airflow_provider_llmbatch.settings` reads them.
OPTIONS: dict[str, dict[str, Any]] = {
    "results_path": _option(
        "Where results are kept when a task names no path: a directory, or a URL of any fsspec file system. "
        "Workers on several hosts need one that all of them reach.",
        example="s3://bucket/llmbatch/results",
        default="{AIRFLOW_HOME}/llmbatch/results",
    ),
    "state_url": {
        **_option(
            "Where limits, fences and progress are kept: sqlite:////<path> for one host, redis:// or "
            "rediss:// for several.",
            example="redis://:password@redis:6379/0",
            default="sqlite:///{AIRFLOW_HOME}/llmbatch/state.db",
        ),
        "sensitive": True,
    },
    "redis_conn_id": _option(
        "A connection of type redis whose server keeps limits, fences and progress, in place of state_url.",
        example="redis_default",
    ),
    "prompts_path": _option(
        "A directory of prompts/<name>/<version>.yaml, searched after the one beside the DAG file.",
        example="/opt/airflow/prompts",
    ),
    "prices_path": _option(
        "A YAML file of prices in US dollars per million tokens, which goes before the built-in prices.",
        example="/opt/airflow/llm-prices.yaml",
    ),
    "default_encoding": _option(
        "The encoding that counts tokens of models nobody knows: o200k_base or cl100k_base.",
        example="cl100k_base",
        default="o200k_base",
    ),
    "io_queue": _option("Queue of tasks that wait for services, unless a task names one.", example="io"),
    "cpu_queue": _option("Queue of tasks that compute, unless a task names one.", example="cpu"),
    "gpu_queue": _option("Queue of tasks that need a GPU, unless a task names one.", example="gpu"),
    "token_providers": _option(
        "Functions that give API keys that expire, as JSON by the name that connections use in their extra "
        "field token_provider. A function takes the connection's id and returns the key, or the key and the "
        "Unix time at which it expires.",
        example='{"entra": "company.tokens.entra"}',
    ),
    "single_host": _option(
        "Say that all workers run on one host, so that state and results on its disk are good enough.",
        type="boolean",
        example="True",
        default="False",
    ),
    "shared_filesystem": _option(
        "Say that results_path and the state file lie on a file system that all workers share.",
        type="boolean",
        example="True",
        default="False",
    ),
    "defer_after": _option(
        "Seconds of waiting for a limit after which a task gives its worker slot back.",
        type="float",
        example="300",
        default="60",
    ),
    "max_wait": _option(
        "Seconds that an item waits for limits and retries before it ends as exhausted.",
        type="float",
        example="3600",
        default="21600",
    ),
    "statsd_host": _option(
        "Host of a statsd server for the metrics of batches. Empty: they go where Airflow's own metrics go.",
        example="statsd-exporter",
    ),
    "statsd_port": _option("UDP port of statsd_host.", type="integer", example="9125", default="8125"),
    "statsd_prefix": _option(
        "What stands before the names of metrics that go to statsd_host.", example="production"
    ),
}


def _field(label: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"label": label, "schema": schema, "description": description}


CONN_FIELDS: dict[str, dict[str, Any]] = {
    "model": _field("Model", _OPTIONAL_TEXT, "Model of tasks that name none."),
    "requests_per_minute": _field("Requests per minute", _OPTIONAL_AMOUNT, "Empty: not limited."),
    "tokens_per_minute": _field("Tokens per minute", _OPTIONAL_AMOUNT, "Empty: not limited."),
    "requests_per_day": _field("Requests per day", _OPTIONAL_AMOUNT, "Empty: not limited."),
    "tokens_per_day": _field("Tokens per day", _OPTIONAL_AMOUNT, "Empty: not limited."),
    "max_in_flight": _field(
        "Calls in flight", _OPTIONAL_AMOUNT, "Most calls open at the same time, over all workers."
    ),
    "counts": _field(
        "Tokens counted",
        {"type": ["string", "null"], "enum": ["reserved", "used"]},
        "Whether the service counts what a request reserves (prompt and max output) or what it used.",
    ),
    "limits": _field(
        "Limits by model",
        _OPTIONAL_LIST,
        'Go before those above: [{"models": ["gpt-4o*"], "account": "team", "requests_per_minute": 500}].',
    ),
    "budgets": _field(
        "Budgets",
        _OPTIONAL_LIST,
        'Over all DAGs: [{"name": "team", "usd": 50, "per": "day"}]. usd or tokens, per run, day or month.',
    ),
    "account": _field(
        "Account",
        _OPTIONAL_TEXT,
        "Keys of one account share its limits. Empty: the key is an account of its own.",
    ),
    "credentials": _field(
        "Further API keys",
        _OPTIONAL_LIST,
        'Used when the first one fails: [{"api_key": "…", "account": "…"}].',
    ),
    "token_provider": _field(
        "Token provider",
        _OPTIONAL_TEXT,
        "Name in [llmbatch] token_providers of what gives keys that expire, in place of the API key.",
    ),
    "api": _field(
        "API",
        {"type": ["string", "null"], "enum": ["chat_completions"]},
        "Protocol of the endpoint.",
    ),
    "response_format": _field(
        "Form of schemas",
        {"type": ["string", "null"], "enum": ["json_schema", "json_object_schema", "json_object", "none"]},
        "How the service is asked for JSON. Empty: json_schema, as OpenAI, vLLM and Ollama take it; "
        "llama-cpp-python takes json_object_schema. All others also show the schema in the system message.",
    ),
    "cache_on_throttle": _field(
        "Answers when throttled",
        {"type": ["string", "null"], "enum": ["never", "unsampled", "always"]},
        "Whether a request that meets a 429 takes the answer that the same request has had before: of those "
        "without a temperature above 0 (unsampled), or of all. Empty: never, it waits.",
    ),
    "azure_deployment": _field("Azure deployment", _OPTIONAL_TEXT, "Name of the deployment, on Azure only."),
    "api_version": _field("Azure API version", _OPTIONAL_TEXT, "Such as 2024-10-21, on Azure only."),
    "context_window": _field("Context window", _OPTIONAL_AMOUNT, "Tokens that fit, for models nobody knows."),
    "encoding": _field("Token encoding", _OPTIONAL_TEXT, "Such as o200k_base, for models nobody knows."),
    "prices": _field(
        "Prices",
        _OPTIONAL_OBJECT,
        'US dollars per million: {"my-model": {"input": "0.15", "output": "0.60"}}.',
    ),
    "timeout_s": _field(
        "Timeout", {"type": ["number", "null"], "exclusiveMinimum": 0}, "Seconds for one call. Empty: 600."
    ),
    "headers": _field("Headers", _OPTIONAL_OBJECT, 'Sent with every call: {"X-Team": "research"}.'),
    "proxy": _field(
        "Proxy", {"type": ["string", "null"], "format": "password"}, "http://name:password@proxy:3128"
    ),
    "ca_file": _field("CA file", _OPTIONAL_TEXT, "Path of the certificates to trust, on every worker."),
}


CONNECTION_TYPE: dict[str, Any] = {
    "connection-type": "llmbatch",
    "hook-class-name": f"{PACKAGE}.hooks.llm.LLMBatchHook",
    "hook-name": "LLM (OpenAI-compatible)",
    "ui-field-behaviour": {
        "hidden-fields": ["schema", "login", "port"],
        "relabeling": {"host": "Base URL", "password": "API key"},
        "placeholders": {"host": "https://api.openai.com/v1"},
    },
    "conn-fields": CONN_FIELDS,
}


OPERATORS = ("split", "dispatch", "report", "validate", "export", "review", "fusion", "grade", "rollout")


def _modules(ring: str, *names: str) -> dict[str, Any]:
    return {"integration-name": INTEGRATION, "python-modules": [f"{PACKAGE}.{ring}.{name}" for name in names]}


def get_provider_info() -> dict[str, Any]:
    """Return the declaration in the form of Airflow's ``provider_info`` schema."""
    return {
        "package-name": "airflow-provider-llmbatch",
        "name": "LLM batches",
        "description": "Finish ten thousand LLM calls from a DAG: limits, resume, validated rows, a bill.",
        "integrations": [
            {
                "integration-name": INTEGRATION,
                "external-doc-url": "https://platform.openai.com/docs/api-reference/chat",
                "tags": ["ai"],
            }
        ],
        "operators": [_modules("operators", *OPERATORS)],
        "hooks": [_modules("hooks", "llm")],
        "sensors": [_modules("sensors", "review")],
        "notifications": [f"{PACKAGE}.notifications.review.LLMBatchReviewNotifier"],
        "task-decorators": [{"name": "llm_map", "class-name": f"{PACKAGE}.operators.llm_map.llm_map_task"}],
        "extra-links": [
            f"{PACKAGE}.operators.links.LLMBatchReportLink",
            f"{PACKAGE}.operators.links.LLMBatchReviewLink",
        ],
        "connection-types": [CONNECTION_TYPE],
        "cli": [f"{PACKAGE}.cli.definition.get_llmbatch_cli_commands"],
        "config": {
            "llmbatch": {
                "description": "Settings of airflow-provider-llmbatch.",
                "options": OPTIONS,
            }
        },
    }
