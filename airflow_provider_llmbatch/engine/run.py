"""
The whole flow, in order. Open this first.

::

    plan(job)    rows ─▶ compose (render, count) ─▶ chunks, money, time                nothing is sent
    run(job)     chunk ─▶ unchanged? ─▶ fence ─▶ what is done already
                   └─▶ dispatch:  compose ─▶ take ─▶ call ─▶ settle ─▶ advise ⟲ ─▶ check ─▶ row
                         └─▶ compact ─▶ manifest

Steps know only the nouns of :mod:`.items` and :mod:`.summary`; this module joins them, and
:mod:`.assemble` puts the dispatcher together.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from decimal import Decimal

from airflow_provider_llmbatch.engine import manifests
from airflow_provider_llmbatch.engine.account import Account
from airflow_provider_llmbatch.engine.again import Again
from airflow_provider_llmbatch.engine.assemble import assemble
from airflow_provider_llmbatch.engine.dispatch.attempt import MICRO
from airflow_provider_llmbatch.engine.dispatch.reuse import When
from airflow_provider_llmbatch.engine.dispatch.work import Chain, Work
from airflow_provider_llmbatch.engine.identity import UniqueIds, digest_rows
from airflow_provider_llmbatch.engine.items import BadItem, Chunk, Item, Outcome, Result
from airflow_provider_llmbatch.engine.job import Job, tools
from airflow_provider_llmbatch.engine.lane import scopes_of
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.engine.observe.progress import ProgressObserver
from airflow_provider_llmbatch.engine.results import resume
from airflow_provider_llmbatch.engine.results.answers import Answers
from airflow_provider_llmbatch.engine.results.folder import Folder, open_folder
from airflow_provider_llmbatch.engine.results.store import ResultStore, open_store
from airflow_provider_llmbatch.engine.reusing import reuse_of
from airflow_provider_llmbatch.engine.source import Row
from airflow_provider_llmbatch.engine.split import Strategy, estimate
from airflow_provider_llmbatch.engine.split import plan as split
from airflow_provider_llmbatch.engine.state.claims import Claims
from airflow_provider_llmbatch.engine.state.patient import PatientState
from airflow_provider_llmbatch.engine.state.protocols import Scope, State
from airflow_provider_llmbatch.engine.state.routing import Pins
from airflow_provider_llmbatch.engine.state.stops import Stops
from airflow_provider_llmbatch.engine.stopping import heeding
from airflow_provider_llmbatch.engine.summary import Manifest, Plan
from airflow_provider_llmbatch.errors import InputError, StoreError

#: Tells a person, in a sentence, what they should know.
Note = Callable[[str], None]


def plan(job: Job, *, token_budget: int, max_chunks: int, strategy: Strategy, note: Note) -> Plan:
    """
    Cut the job's source into chunks and say what they will take; nothing is sent.

    :param token_budget: tokens of a chunk, in and out.
    :param max_chunks: most chunks.
    :raises InputError: for a source that cannot be used: empty, repeated ids, too many broken rows.
    """
    kit = tools(job, note)
    with UniqueIds(job.source.uri) as ids:
        drawn = split(
            functools.partial(job.source.rows, stop=job.sample),
            kit.composer.compose,
            ids=ids,
            source_uri=job.source.uri,
            prompt=job.prompt.ref,
            model=job.model,
            token_budget=token_budget,
            max_chunks=max_chunks,
            strategy=strategy,
            fixed_tokens=kit.composer.fixed_tokens,
            on_note=note,
        )
    _refuse_mostly_broken(job, drawn.items, drawn.bad_items)
    price = functools.partial(kit.prices.cost, job.model)
    return replace(drawn, estimate=estimate(drawn, limits=[job.limits], cost=price))


def whole(job: Job) -> Chunk:
    """
    Return the source as one chunk, for a run without a plan.

    :raises InputError: for a source that cannot be used: empty, repeated ids, too many broken rows.
    """
    bad = count = 0

    def raws(ids: UniqueIds) -> Iterator[bytes]:
        nonlocal bad, count
        for row in job.source.rows():
            ids.add(row.item.id, row.item.index)
            bad += isinstance(row.item, BadItem)
            count += 1
            yield row.raw

    with UniqueIds(job.source.uri) as ids:
        sha = digest_rows(raws(ids))
    if not count:
        raise InputError(f"{job.source.uri} holds no items; was the task that writes it finished?")
    _refuse_mostly_broken(job, count, bad)
    return Chunk(number=0, start=0, stop=count, offset=0, sha=sha)


def pilot(job: Job, chunk: Chunk) -> Chunk:
    """
    Return the part of a chunk that is dispatched: all of it, or what is among the job's sample.

    The sample is the first so many items of the source, so a larger one holds a smaller one, and the whole
    source holds all. Chunks after it have no items.

    :raises InputError: when the source changed since the chunk was cut.
    """
    stop = chunk.stop if job.sample is None else max(chunk.start, min(chunk.stop, job.sample))
    if stop == chunk.stop:
        return chunk
    _refuse_changed(job, chunk)
    sha = _digest(job, chunk, stop)
    return replace(chunk, stop=stop, sha=sha, pilot_of=chunk.items, whole_sha=chunk.sha)


async def run(
    job: Job,
    chunk: Chunk,
    *,
    state: State,
    observe: events.Observer,
    note: Note,
    again: Again | None = None,
    claims: Claims | None = None,
    reuse_when: When = "first",
    stops: Stops | None = None,
    pins: Pins | None = None,
) -> Manifest:
    """
    Dispatch a chunk, or what earlier tries have left of it, and return the account.

    :param chunk: from :func:`plan` or :func:`whole`.
    :param state: limits, fences and progress.
    :param again: sends only these items, and leaves the chunk's manifest to the caller; None sends what is
        left.
    :param claims: who asks which question; None asks every one, whoever else has.
    :param reuse_when: whether others' answers are taken first, or only instead of waiting when throttled.
    :param stops: which runs shall stop; None dispatches to the end.
    :param pins: where people want calls to go; None follows the routes alone.
    :raises ConfigurationError: for a budget without a price, or results of another host.
    :raises InputError: when the source changed, or the results there answer another input.
    :raises StoreError: when results or state cannot be trusted; what was paid is stored.
    """
    kits = {name: tools(job.at(name), note) for name in job.table.names}
    kit = kits[job.table.names[0]]
    _refuse_changed(job, chunk)
    folder = open_folder(job.result_path, filesystem=job.filesystem)
    spent = functools.partial(_spent, folder)
    state = PatientState(state, observe, spent=spent, now=job.clocks.now)
    fence = await state.next(job.owner, at_least=resume.highest_fence(folder, chunk.number) + 1)
    store = _store(folder, job, chunk, fence, again)
    for limits in scopes_of(job, fence):
        await state.rebuild(limits, spent(limits, periods=False))
    manifests.forget(folder, chunk.number)
    progress = ProgressObserver(state.report, owner=job.owner, result_path=folder.uri, now=job.clocks.now)
    account = Account(job, chunk, store, events.Fanout([observe, progress]), again)
    reuse = None if claims is None else reuse_of(job, chunk, folder, claims, fence, reuse_when)
    trial = job.trial.followed(folder.uri, chunk.number, at=job.clocks.wall()) if job.trial else nullcontext()
    async with progress.kept(), trial, reuse.kept() if reuse else nullcontext():
        with account:
            with closing(store):
                assembled = assemble(job, kits, store, state, fence, account, reuse, pins)
                async with assembled as (dispatcher, lanes, router, pursuer):
                    work = _left(job, chunk, store, again)
                    dispatch = functools.partial(dispatcher.run, work, lanes, router, pursuer)
                    await heeding(stops, job, dispatcher, dispatch)
            if isinstance(dispatcher.stopped, StoreError):
                raise dispatcher.stopped
            saved_usd = reuse.saved_usd if reuse else Decimal(0)
            manifest = account.close(
                store.compact(), list(lanes), kit.drift.ratio, dispatcher.stopped, saved_usd=saved_usd
            )
    store.put_bill()
    if again is None:
        manifests.store(folder, manifest)
    return manifest


def _spent(folder: Folder, limits: Scope, *, periods: bool = True) -> Mapping[str, int]:
    """
    Return what the ledgers of all chunks say that each budget has been spent.

    Of a budget that other runs share it is the part that is known here; a rebuild only raises it.

    :param periods: whether budgets of a day or month are among them, which this run may have begun before.
    """
    budgets = [meter for meter in limits.meters if meter.window_s is None and (periods or not meter.period)]
    if not budgets:
        return {}
    usage, cost = resume.spent(folder)
    spent = {"micro_usd": math.ceil(cost.usd * MICRO), "tokens": usage.total}
    return {meter.key: spent[meter.unit] for meter in budgets}


def _store(folder: Folder, job: Job, chunk: Chunk, fence: int, again: Again | None) -> ResultStore:
    if again is None:
        return open_store(folder, _answers(job, chunk), fence, job.on_existing)
    return open_store(folder, again.answers, fence, "resume", round=again.round)


def _left(job: Job, chunk: Chunk, store: ResultStore, again: Again | None) -> Iterator[Work]:
    """Yield what is not done yet; of a chain, all turns, with the rows of those that are."""
    is_done = functools.partial(again.is_done, store.where) if again else store.where.is_final
    rows = job.source.rows(start=chunk.start, offset=chunk.offset, stop=chunk.stop)
    for grouped, found in itertools.groupby(rows, key=_group):
        if grouped is None:
            yield from (row.item for row in found if not is_done(row.index))
            continue
        items = [row.item for row in found]
        done = {item.index: _row(store, item) for item in items if is_done(item.index)}
        if len(done) < len(items):
            yield Chain(items=items, done=done)


def _row(store: ResultStore, item: Item | BadItem) -> Result:
    """Return an item's row; one that has none was not sent."""
    if store.where.outcome(item.index) is None:
        return Result(index=item.index, id=item.id, outcome=Outcome.UNSENT)
    return store.row(item.index)


def _group(row: Row) -> str | None:
    return row.item.group if row.may_chain and isinstance(row.item, Item) else None


def _answers(job: Job, chunk: Chunk) -> Answers:
    return Answers(
        chunk=chunk.number,
        start=chunk.start,
        stop=chunk.stop,
        fingerprint=job.fingerprint(chunk.sha),
        whole=job.fingerprint(chunk.whole_sha or chunk.sha),
        source=job.source.uri,
        prompt=job.prompt.ref,
        model=job.model,
        schema_digest=job.schema.digest,
        host=job.host,
        occasion=job.occasion,
    )


def _digest(job: Job, chunk: Chunk, stop: int) -> str:
    """Return the SHA-256 of a chunk's rows up to an index."""
    rows = job.source.rows(start=chunk.start, offset=chunk.offset, stop=stop)
    return digest_rows(row.raw for row in rows)


def _refuse_changed(job: Job, chunk: Chunk) -> None:
    if _digest(job, chunk, chunk.stop) != chunk.sha:
        raise InputError(
            f"{job.source.uri} changed since it was split (items {chunk.start} to {chunk.stop - 1}). Nothing "
            "was sent; clear the split task as well, or restore the file."
        )


def _refuse_mostly_broken(job: Job, items: int, bad: int) -> None:
    if bad <= items * job.max_failed:
        return
    first = next(row.item for row in job.source.rows() if isinstance(row.item, BadItem))
    raise InputError(
        f"{bad} of {items} rows of {job.source.uri} are no items, more than max_failed={job.max_failed:g} "
        f"allows. The first: {first.error.message} Nothing was sent; mend the rows or raise max_failed."
    )
