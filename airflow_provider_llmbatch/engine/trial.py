"""Join a rollout and what is sent: each item is asked with the version that its unit has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from airflow_provider_llmbatch.engine.compose import Composer
from airflow_provider_llmbatch.engine.dispatch import router
from airflow_provider_llmbatch.engine.identity import fingerprint
from airflow_provider_llmbatch.engine.items import Item, Json, Message, Request, Result
from airflow_provider_llmbatch.engine.prompt import Prompt
from airflow_provider_llmbatch.engine.rollout.standing import Live
from airflow_provider_llmbatch.engine.rollout.steps import Steps
from airflow_provider_llmbatch.engine.rollout.variant import Arm, arm_of, unit_of
from airflow_provider_llmbatch.errors import InputError, StoreError

#: Seconds after which the steps are read again.
EVERY_S = 2.0


class Composing(router.Composer, Protocol):
    """Makes the requests of a job at one endpoint."""

    @property
    def fixed_tokens(self) -> int:
        """Input tokens that every request has, whatever its item."""


#: Makes the composer of a version: from its prompt, the params over it, and the name of its arm.
Make = Callable[[Prompt, Mapping[str, Json], Arm], Composer]


class Trial:
    """
    A rollout as a dispatch follows it.

    A unit keeps its version for as long as the dispatch lasts, over retries and review: the dispatch goes by
    the rate at which it began, however the rollout climbs meanwhile. Only a pause, or a step back, takes
    effect within it.

    :param steps: of the rollout.
    :param base: prompt of the base, and ``candidate`` of the candidate.
    :param arm: the one that all items have, whatever the rate; None goes by it.
    :param every_s: seconds after which the steps are read again.
    :raises InputError: when the rollout was not opened, or a prompt is another one than it was opened with.
    """

    def __init__(
        self,
        steps: Steps,
        base: Prompt,
        candidate: Prompt,
        *,
        arm: Arm | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        standing = steps.standing()
        self.terms = standing.terms
        self.prompts: Mapping[Arm, Prompt] = {"base": base, "candidate": candidate}
        for name, prompt in self.prompts.items():
            _refuse_changed(prompt, self.terms.version(name).prompt.sha, self.terms.name)
        self._steps = steps
        self._arm = arm
        self._every_s = every_s
        #: the rate that the dispatch began with, and the one that holds now
        self._began = 1.0
        self._now = standing.rate

    @property
    def prompt(self) -> Prompt:
        """The prompt that stands for all: that of the only arm, or of the base."""
        return self.prompts[self._arm or "base"]

    @property
    def identity(self) -> str:
        """What answers must have in common, beside the prompt."""
        return fingerprint("trial", self.terms.to_json(), self._arm)

    @property
    def rate(self) -> float:
        """Share of the units that get the candidate from now on."""
        return min(self._began, self._now)

    def arm(self, item: Item) -> Arm:
        """Return which version an item is asked with."""
        return self._arm or arm_of(self.terms.key, unit_of(item, self.terms.unit), self.rate)

    def composer(self, make: Make, params: Mapping[str, Json]) -> TrialComposer:
        """
        Return what makes the requests of both arms.

        :param params: of the task, over those of the versions.
        """
        made: dict[Arm, Composer] = {}
        for arm, prompt in self.prompts.items():
            made[arm] = make(prompt, {**self.terms.version(arm).params, **params}, arm)
        return TrialComposer(made, self.arm, self._arm or "base")

    @asynccontextmanager
    async def followed(self, result_path: str, chunk: int, *, at: float) -> AsyncIterator[None]:
        """
        Keep to the rollout's steps while a chunk is sent.

        :param at: Unix seconds.
        """
        if self._arm is not None:
            yield
            return
        await asyncio.to_thread(self._begin, result_path, chunk, at)
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()

    def _begin(self, result_path: str, chunk: int, at: float) -> None:
        self._now = self._steps.standing().rate
        key = fingerprint("live", result_path, chunk)[:32]
        live = Live(key=key, result_path=result_path, chunk=chunk, rate=self._now, at=at)
        self._began = self._steps.leave_note(live).rate

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                self._now = (await asyncio.to_thread(self._steps.standing)).rate
            except (StoreError, InputError):
                # Nobody gets a candidate that may have been paused.
                self._now = 0.0


class TrialComposer:
    """
    Makes requests with the version that an item has.

    :param made: composers by arm.
    :param arm: says which an item has.
    :param usual: the arm whose prompt all requests are taken to have, for estimates.
    """

    def __init__(self, made: Mapping[Arm, Composer], arm: Callable[[Item], Arm], usual: Arm) -> None:
        self._made = made
        self._arm = arm
        self._usual = usual

    @property
    def fixed_tokens(self) -> int:
        """See :meth:`.compose.Composer.fixed_tokens`."""
        return self._made[self._usual].fixed_tokens

    def compose(self, item: Item, earlier: Sequence[Message] = ()) -> Request | Result:
        """See :meth:`.compose.Composer.compose`."""
        return self._made[self._arm(item)].compose(item, earlier)

    def measure(self, item: Item, earlier: Sequence[Message] = ()) -> tuple[int, int] | Result:
        """See :meth:`.compose.Composer.measure`."""
        return self._made[self._arm(item)].measure(item, earlier)

    def variant(self, item: Item) -> str:
        """Return the arm of an item."""
        return self._arm(item)


def _refuse_changed(prompt: Prompt, sha: str, rollout: str) -> None:
    if prompt.ref.sha != sha:
        raise InputError(
            f"The prompt {prompt.ref} has the hash {prompt.ref.sha[:12]}; the rollout {rollout!r} was opened "
            f"with {sha[:12]}. Nothing was sent; restore the file, or open a rollout of another name."
        )
