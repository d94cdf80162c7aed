"""
The steps of a rollout: an append-only log on storage, which is the truth about it.

::

    step-<number>.json      one step: opened, a round, or what a person did
    steps-<n>.jsonl         a hundred of them, so that they are read at once
    live-<key>.json         a dispatch under the rollout: where its rows are, and at which rate it began
    grades-<key>.jsonl      the scores of a round
    told-<number>.json      notifiers were told of that step

Workers read the log's end every two seconds, so a pause takes effect for all of them then. Nobody has to tell
them, and nothing is lost with the shared state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from airflow_provider_llmbatch.engine.identity import fingerprint
from airflow_provider_llmbatch.engine.journal import Entry, Journal, Person, Storage, put_json, read_json
from airflow_provider_llmbatch.engine.rollout.gate import Move, move, streaks_after
from airflow_provider_llmbatch.engine.rollout.standing import Act, Live, RoundOf, Standing, Step
from airflow_provider_llmbatch.engine.rollout.terms import Rules, Terms
from airflow_provider_llmbatch.engine.rollout.verdict import Comparison
from airflow_provider_llmbatch.errors import InputError, StoreError

#: Most characters of a reason.
WHY_LENGTH = 2000
_LIVE = "live-"


def entry_file(number: int) -> str:
    """Return the name of the file of a step."""
    return f"step-{number:06d}.json"


def pack_file(number: int) -> str:
    """Return the name of the file that holds many steps."""
    return f"steps-{number:04d}.jsonl"


class Steps:
    """
    The steps of a rollout.

    :param storage: its folder.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._journal = Journal(storage, entry_file, pack_file)
        self._standing: Standing | None = None
        self.rounds: list[RoundOf] = []
        self.history: list[Step] = []
        #: occasions on which a person has done something
        self._done: set[str] = set()

    def refresh(self) -> Standing | None:
        """
        Read what is new, and return where the rollout stands; None when it was not opened.

        :raises StoreError: when the log cannot be read.
        """
        for entry in self._journal.news():
            self._take(entry)
        return self._standing

    def standing(self) -> Standing:
        """
        Return where it stands.

        :raises InputError: when it was not opened.
        """
        found = self.refresh()
        if found is None:
            raise InputError(
                f"There is no rollout in {self._storage.uri}; run its LLMBatchRolloutOperator before "
                "anything is sent under it."
            )
        return found

    def open(self, terms: Terms, rules: Rules, *, at: float) -> Standing:
        """
        Open the rollout, unless it is open.

        :param at: Unix seconds.
        :raises InputError: when it was opened on other terms.
        """
        entry = {"type": "opened", "at": at, "terms": terms.to_json(), "rate": rules.ladder[0]}
        entry["rules"] = asdict(rules)
        while (found := self.refresh()) is None and not self._add(entry):
            pass
        found = found or self.standing()
        if fingerprint(found.terms.to_json()) != fingerprint(terms.to_json()):
            raise InputError(
                f"The rollout {terms.name!r} was opened with {_told(found.terms)}; this task has "
                f"{_told(terms)}. What is tried stays the same for as long as a rollout lasts: give another "
                "one another name, or restore prompts, params and unit."
            )
        return found

    def close_round(
        self,
        comparisons: Sequence[Comparison],
        rules: Rules,
        *,
        occasion: str,
        used: Sequence[str],
        mismatch_p: float | None,
        at: float,
        grades: str = "",
    ) -> RoundOf:
        """
        Log a round and what follows from it; one that was logged on the same occasion is returned.

        :param occasion: what all tries of the task have in common until somebody clears it.
        :param used: keys of the live answers in it.
        :param grades: name of the file of its scores in the rollout's folder.
        """
        while True:
            standing = self.standing()
            if (known := next((one for one in self.rounds if one.occasion == occasion), None)) is not None:
                return known
            streaks = streaks_after(standing.streaks, comparisons)
            if standing.state == "running":
                decided = move(standing.rate, streaks, comparisons, rules, mismatch_p)
            else:
                decided = Move(action="hold", rate=0.0, why="it is paused; only a person resumes it")
            entry = {
                "type": "round",
                "at": at,
                "occasion": occasion,
                "number": standing.rounds + 1,
                "comparisons": [each.to_json() for each in comparisons],
                "rules": asdict(rules),
                "used": list(used),
                "mismatch_p": mismatch_p,
                "grades": grades,
                **asdict(decided),
            }
            if self._add(entry):
                return self.rounds[-1]

    def act(
        self,
        act: Act,
        rules: Rules,
        *,
        by: Person,
        why: str,
        at: float,
        occasion: str = "",
        to: float | None = None,
        after: int | None = None,
    ) -> Standing:
        """
        Log what a person does: pause, resume at the lowest rung, or climb.

        :param occasion: what all tries of a task have in common until somebody clears it; what was done on
            it is not done again.
        :param to: the rate to climb to; that of the next rung when None.
        :param after: the last step that the person has seen. Nobody climbs or resumes after a step that they
            have not seen; None says that they look at no page. A pause is always safe.
        :raises InputError: when there is nothing like that to do, somebody was faster, or nobody does it.
        """
        if not by.name:
            raise InputError(f"Nobody is named who would {act} the rollout; only a person does that.")
        while True:
            standing = self.standing()
            if occasion and occasion in self._done:
                return standing
            if act != "pause" and after not in (None, standing.number):
                raise InputError(
                    f"The rollout {standing.terms.name!r} has changed: {standing.last}. Look at it, "
                    f"and {act} it then if you still want to."
                )
            entry = {"type": "act", "at": at, "act": act, "rate": _rate_after(act, standing, rules, to)}
            entry |= {"why": why, "by": asdict(by), "occasion": occasion}
            entry |= {"rules": asdict(rules), "is_news": True}
            if self._add(entry):
                return self.standing()

    def untold(self) -> list[Step]:
        """
        Return what people have done that no notifier was told of, and see to it that no other task gets it.

        :raises StoreError: when that cannot be written.
        """
        self.standing()
        names = set(self._storage.names())
        return [step for step in self.history if step.is_news and self._is_first_to_tell(step, names)]

    def _is_first_to_tell(self, step: Step, names: set[str]) -> bool:
        name = f"told-{step.number:06d}.json"
        if name in names:
            return False
        try:
            put_json(self._storage, name, {})
        except FileExistsError:
            return False
        return True

    def leave_note(self, live: Live) -> Live:
        """Say where live answers are; what was said when their dispatch began is kept, and returned."""
        try:
            put_json(self._storage, f"{_LIVE}{live.key}.json", asdict(live))
        except FileExistsError:
            pass
        else:
            return live
        return next(note for note in self._notes([f"{_LIVE}{live.key}.json"]))

    def notes(self) -> list[Live]:
        """Return where live answers are that no round has used yet, the first ones first."""
        used = self.standing().used
        names = [name for name in self._storage.names() if name.startswith(_LIVE)]
        fresh = [name for name in names if name.removeprefix(_LIVE).removesuffix(".json") not in used]
        return sorted(self._notes(fresh), key=lambda note: (note.at, note.key))

    def _notes(self, names: Sequence[str]) -> Iterator[Live]:
        for name in names:
            data = read_json(self._storage, name)
            if data is None:
                raise StoreError(f"{self._storage.uri}/{name} is gone; restore it.")
            del data["schema_version"]
            yield Live(**data)

    def _add(self, entry: Entry) -> bool:
        if not self._journal.append(entry):
            return False
        self._take(entry)
        return True

    def _take(self, entry: Entry) -> None:
        kinds: Mapping[str, Callable[[Entry], Standing]] = {
            "opened": _opened,
            "round": self._after_round,
            "act": self._after_act,
        }
        found = kinds[entry["type"]](entry)
        # Before they were in every entry, they were in those of rounds alone.
        rules = Rules.from_json(entry["rules"]) if "rules" in entry else found.rules
        self._standing = replace(found, rules=rules, number=self._journal.read)
        self.history.append(_step(entry, self._standing))

    def _after_round(self, entry: Entry) -> Standing:
        standing = self._known()
        comparisons = tuple(Comparison.from_json(each) for each in entry["comparisons"])
        decided = Move(action=entry["action"], rate=entry["rate"], why=entry["why"])
        logged = RoundOf(
            number=entry["number"],
            at=entry["at"],
            occasion=entry["occasion"],
            move=decided,
            comparisons=comparisons,
            mismatch_p=entry["mismatch_p"],
            grades=entry.get("grades", ""),
        )
        self.rounds.append(logged)
        paused = decided.action == "pause"
        return replace(
            standing,
            state="paused" if paused else standing.state,
            rate=decided.rate,
            rung=standing.rung if decided.rate == 0 else decided.rate,
            rounds=entry["number"],
            streaks=streaks_after(standing.streaks, comparisons),
            used=standing.used | frozenset(entry["used"]),
            last=f"round {entry['number']}: {decided.action}, {decided.why}",
        )

    def _after_act(self, entry: Entry) -> Standing:
        standing, act = self._known(), entry["act"]
        self._done.add(entry["occasion"])
        resumed = act == "resume"
        return replace(
            standing,
            state="paused" if act == "pause" else "running",
            rate=entry["rate"],
            rung=standing.rung if act == "pause" else entry["rate"],
            streaks={} if resumed else standing.streaks,
            since=entry["at"] if resumed else standing.since,
            last=f"{act} by {entry['by']['name']}" + (f": {entry['why']}" if entry["why"] else ""),
        )

    def _known(self) -> Standing:
        if self._standing is None:
            raise StoreError(f"{self._storage.uri} does not begin with its opening; restore it.")
        return self._standing


def _opened(entry: Entry) -> Standing:
    return Standing(
        terms=Terms.from_json(entry["terms"]),
        rules=Rules(),
        number=1,
        state="running",
        rate=entry["rate"],
        rung=entry["rate"],
        since=entry["at"],
        last="opened",
    )


def _rate_after(act: Act, standing: Standing, rules: Rules, to: float | None) -> float:
    """
    Return the rate that something a person does leads to.

    :raises InputError: when there is nothing like that to do.
    """
    name = standing.terms.name
    if (act == "resume") != (standing.state == "paused"):
        raise InputError(f"The rollout {name!r} is {standing.state}, so there is nothing to {act}.")
    if act != "promote":
        return 0.0 if act == "pause" else rules.ladder[0]
    rate = rules.next_rate(standing.rate) if to is None else to
    if not standing.rate < rate <= 1:
        raise InputError(
            f"The rollout {name!r} is at {standing.rate:.0%}, and {rate:.0%} is no higher rate up to 100%, "
            "so there is nothing to promote."
        )
    return rate


def _step(entry: Entry, standing: Standing) -> Step:
    """Return what was logged as one of the steps, with where the rollout stood after it."""
    is_round = entry["type"] == "round"
    return Step(
        number=standing.number,
        at=entry["at"],
        action="open" if entry["type"] == "opened" else entry["action" if is_round else "act"],
        state=standing.state,
        rate=standing.rate,
        why=entry.get("why", ""),
        by=Person(**entry["by"]) if "by" in entry else Person(),
        round=entry["number"] if is_round else None,
        is_news=entry.get("is_news", False),
    )


def _told(terms: Terms) -> str:
    arms: list[Any] = [terms.base, terms.candidate]
    told = " against ".join(f"{arm.prompt} ({arm.prompt.sha[:12]})" for arm in arms)
    return f"{told} by {terms.unit}"
