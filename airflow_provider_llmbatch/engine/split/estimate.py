"""What a plan will take at the limits, in seconds and dollars. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from airflow_provider_llmbatch.engine.items import Cost, Usage
from airflow_provider_llmbatch.engine.summary import Estimate, Plan

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.connection import LimitRule

#: Share of the reserved output that a reply is expected to use when nothing better is known.
EXPECTED_SHARE = 0.5

_DAY_S = 86_400.0


def estimate(
    plan: Plan,
    *,
    limits: Sequence[LimitRule] = (),
    cost: Callable[[Usage], Cost] | None = None,
    output_per_item: int | None = None,
    latency_s: float | None = None,
) -> Estimate:
    """
    Return money and time of a plan.

    The least money has one output token an item, the most has all that is reserved.

    :param limits: those of each account that shares the work.
    :param cost: price of the model's tokens.
    :param output_per_item: expected output tokens; half of the reserve when None.
    :param latency_s: seconds of a call, which ``max_in_flight`` needs to say anything about time.
    """
    requests = plan.items - plan.bad_items
    expected = _expected_output(plan, output_per_item)
    durations = _durations(plan, limits, expected, latency_s)
    binds = max(durations, key=lambda name: durations[name], default="")
    seconds = durations.get(binds, 0.0)
    return Estimate(
        usd=_usd(cost, requests, plan.prompt_tokens, expected),
        usd_low=_usd(cost, requests, plan.prompt_tokens, min(requests, plan.output_tokens)),
        usd_high=_usd(cost, requests, plan.prompt_tokens, plan.output_tokens),
        seconds=seconds,
        binds=binds if seconds else "",
    )


def explain(plan: Plan, limits: Sequence[LimitRule]) -> str:
    """Return in a sentence or two how long the plan takes and why, and what would make it faster."""
    seconds, binds = plan.estimate.seconds, plan.estimate.binds
    if not binds:
        return "No limit slows this down."
    amount = _sum(limits, binds)
    said = f"At the limits this takes about {_duration(seconds)}: {binds} binds, at {amount or 0:,}."
    if binds.startswith("tokens") and _reserved_counts(limits) and plan.output_tokens > plan.prompt_tokens:
        total = plan.prompt_tokens + plan.output_tokens
        said += (
            f" Of the {total:,} tokens that count, {plan.output_tokens:,} are reserved for output, used or "
            "not: max_tokens decides the pace; lower it as far as the replies allow."
        )
    return said


def _durations(
    plan: Plan, limits: Sequence[LimitRule], expected: int, latency_s: float | None
) -> dict[str, float]:
    requests = plan.items - plan.bad_items
    output = plan.output_tokens if _reserved_counts(limits) else expected
    tokens = plan.prompt_tokens + output
    window_s = max((limit.window_s for limit in limits), default=60.0)
    durations = {}
    for kind, amount in (("requests", requests), ("tokens", tokens)):
        if per_minute := _sum(limits, f"{kind}_per_minute"):
            durations[f"{kind}_per_minute"] = amount / per_minute * window_s
        if per_day := _sum(limits, f"{kind}_per_day"):
            # what fits into the first day is not slowed down by a limit per day
            durations[f"{kind}_per_day"] = max(0, amount - 1) // per_day * _DAY_S
    if latency_s and (in_flight := _sum(limits, "max_in_flight")):
        durations["max_in_flight"] = requests * latency_s / in_flight
    return durations


def _sum(limits: Sequence[LimitRule], name: str) -> int | None:
    """Add a limit up over the accounts; one account without it makes it no limit."""
    amounts = [getattr(limit, name) for limit in limits]
    return None if not amounts or None in amounts else sum(amounts)


def _reserved_counts(limits: Sequence[LimitRule]) -> bool:
    return any(limit.counts == "reserved" for limit in limits)


def _expected_output(plan: Plan, output_per_item: int | None) -> int:
    if output_per_item is None:
        return round(plan.output_tokens * EXPECTED_SHARE)
    return min(output_per_item * (plan.items - plan.bad_items), plan.output_tokens)


def _usd(
    cost: Callable[[Usage], Cost] | None, requests: int, prompt_tokens: int, completion_tokens: int
) -> Decimal | None:
    """
    Return the price of all requests, as that of an average one times their number.

    A price with tiers depends on the size of each request, so the sum cannot be priced as one. What is left
    over when the average is made whole is priced by one token more.
    """
    if cost is None:
        return None
    if not requests:
        return Decimal(0)
    prompt, prompt_rest = divmod(prompt_tokens, requests)
    completion, completion_rest = divmod(completion_tokens, requests)
    average = cost(Usage(prompt=prompt, completion=completion))
    if average.unpriced:
        return None
    more_prompt = cost(Usage(prompt=prompt + 1, completion=completion)).usd - average.usd
    more_completion = cost(Usage(prompt=prompt, completion=completion + 1)).usd - average.usd
    usd = average.usd * requests + more_prompt * prompt_rest + more_completion * completion_rest
    return usd.normalize()


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
