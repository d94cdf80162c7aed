"""What a run is asked to do, and the tools that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.compose import Composer
from airflow_provider_llmbatch.engine.connection import ConnectionSettings, LimitRule
from airflow_provider_llmbatch.engine.dispatch.limit.scope import token_limit
from airflow_provider_llmbatch.engine.dispatch.policy import Policy
from airflow_provider_llmbatch.engine.dispatch.route import Routes
from airflow_provider_llmbatch.engine.identity import fingerprint
from airflow_provider_llmbatch.engine.items import Json, RunRef, Usage
from airflow_provider_llmbatch.engine.prompt import Prompt
from airflow_provider_llmbatch.engine.results.answers import OnExisting
from airflow_provider_llmbatch.engine.source import Source
from airflow_provider_llmbatch.engine.tokens.count import TokenCounter
from airflow_provider_llmbatch.engine.tokens.encodings import DEFAULT_ENCODING
from airflow_provider_llmbatch.engine.tokens.price import PriceTable
from airflow_provider_llmbatch.engine.tokens.reserve import Drift, LearntReserve
from airflow_provider_llmbatch.engine.trial import Composing, Trial
from airflow_provider_llmbatch.engine.validate.schema import OutputSchema
from airflow_provider_llmbatch.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.dispatch.call import OpenTransport

#: Share of items that may end badly before the task fails.
MAX_FAILED = 0.1


#: Name of the endpoint of a job without a table of routes.
ONLY = "only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Somebody to ask: an endpoint of a table of routes."""

    connection: ConnectionSettings
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A source, a question, and somebody to ask."""

    source: Source
    prompt: Prompt
    connection: ConnectionSettings
    model: str
    schema: OutputSchema
    #: folder or URL of the results
    result_path: str
    #: fsspec file system of ``result_path``; chosen from the URL when None
    filesystem: Any | None = None
    run: RunRef = RunRef()
    params: Mapping[str, Json] = field(default_factory=dict)
    #: prices by model, over the published ones
    prices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: encoding that counts the tokens of models that nobody knows
    default_encoding: str = DEFAULT_ENCODING
    policy: Policy = field(default_factory=Policy)
    budget_usd: Decimal | None = None
    #: 0 takes before 1 where both wait for the same limits
    priority: int = 0
    on_existing: OnExisting = "resume"
    #: what all tries have in common until somebody clears the task; None when every run stands alone
    occasion: str | None = None
    max_failed: float = MAX_FAILED
    #: only the first so many items of the source
    sample: int | None = None
    #: name of this host, where results and state serve one host only; ``""`` elsewhere
    host: str = ""
    clocks: Clocks = field(default_factory=Clocks)
    #: where items go; None sends all to ``connection`` and ``model``
    routes: Routes | None = None
    #: the endpoints of the routes by name; the first of the table is ``connection`` and ``model``
    asked: Mapping[str, Asked] = field(default_factory=dict)
    #: reads a connection afresh by its id; None keeps to what was read before the run
    reread: Callable[[str], ConnectionSettings] | None = None
    #: two versions of the prompt on trial, of which ``prompt`` is one; None asks all items with that
    trial: Trial | None = None
    #: what calls go through; connections as the endpoint's settings say when None
    transport: OpenTransport | None = None

    @property
    def table(self) -> Routes:
        """Where items go."""
        return self.routes or Routes(names=(ONLY,))

    def at(self, route: str) -> Job:
        """Return the job as an endpoint of the table sees it."""
        asked = self.asked.get(route)
        return self if asked is None else replace(self, connection=asked.connection, model=asked.model)

    def with_connection(self, connection: ConnectionSettings) -> Job:
        """Return the same job over a connection that was read afresh."""
        return replace(self, connection=connection)

    @property
    def owner(self) -> str:
        """The task instance, for fences and progress."""
        return f"{self.run.dag}/{self.run.run}/{self.run.task}/{self.run.map_index}"

    @property
    def run_key(self) -> str:
        """The run that the task belongs to."""
        return f"{self.run.dag}/{self.run.run}"

    @property
    def budget_key(self) -> str:
        """Who shares the budget: all chunks of the task in this run."""
        return f"{self.run.dag}/{self.run.run}/{self.run.task}"

    @property
    def keeps_money(self) -> bool:
        """Whether a budget in money is kept, so that each call reserves its worst case."""
        connections = [self.connection, *(asked.connection for asked in self.asked.values())]
        return self.budget_usd is not None or any(b.usd is not None for c in connections for b in c.budgets)

    @property
    def limits(self) -> LimitRule:
        """The limits of the first credential."""
        return self.connection.limit(self.connection.credentials[0].account, self.model)

    def fingerprint(self, rows_sha: str) -> str:
        """Return what the results answer: rows, prompt, model, params and schema."""
        models = dict.fromkeys([self.model, *(self.at(name).model for name in self.table.names)])
        trial = [] if self.trial is None else [self.trial.identity]
        return fingerprint(
            rows_sha, self.prompt.ref.sha, "|".join(models), dict(self.params), self.schema.digest, *trial
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What counts, prices and composes for a job."""

    counter: TokenCounter
    prices: PriceTable
    reserve: LearntReserve
    composer: Composing
    drift: Drift
    #: tokens that fit the model, when known
    window: int | None

    def learn(self, counted: int, usage: Usage) -> None:
        """Take a reply's usage into account for reservations, and for how far the count is off."""
        self.reserve.observe(usage.completion)
        self.drift.observe(counted=counted, used=usage.prompt)


def tools(job: Job, on_note: Callable[[str], None]) -> Tools:
    """
    Make a job's tools.

    :param on_note: is told, in a sentence, what a person should know.
    :raises ConfigurationError: when a budget is set that cannot be kept.
    """
    connection = job.connection
    counter = TokenCounter.for_model(
        job.model, encoding=connection.encoding, default=job.default_encoding, on_unknown=on_note
    )
    prices = PriceTable({**connection.prices, **job.prices}, api_url=connection.base_url, now=job.clocks.wall)
    if _budget(job) and prices.cost(job.model, Usage()).unpriced:
        raise ConfigurationError(
            f"{_budget(job)}, but the price of model {job.model!r} is not known. Add it to 'prices' in the "
            "connection or to [llmbatch] prices_path, or leave the budget out."
        )
    window = connection.context_window or prices.window(job.model)
    reserve = LearntReserve()

    def make(prompt: Prompt, params: Mapping[str, Json], variant: str | None = None) -> Composer:
        return Composer(
            prompt,
            job.model,
            counter,
            reserve=reserve,
            params=params,
            response_format=job.schema.response_format(connection.response_format),
            instructions=job.schema.instructions(connection.response_format),
            window=window,
            token_limit=token_limit(job.limits),
            variant=variant,
        )

    trial = job.trial
    composer = make(job.prompt, job.params) if trial is None else trial.composer(make, job.params)
    return Tools(
        counter=counter, prices=prices, reserve=reserve, composer=composer, drift=Drift(), window=window
    )


def _budget(job: Job) -> str:
    """Return, in words, the budget in money that has to be kept; empty when there is none."""
    if job.budget_usd is not None:
        return f"budget_usd is {job.budget_usd}"
    named = next((budget for budget in job.connection.budgets if budget.usd is not None), None)
    return f"Connection {job.connection.conn_id!r} has the budget {named.name!r}" if named else ""
