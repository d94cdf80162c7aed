"""
The steps of a rollout: an append-only log on storage, which is the truth about it.

::

    step-<number>.json      one step: opened, a round, or what a person did
    steps-<n>.jsonl         a hundred of them, so that they are read at once
    live-<key>.json         a dispatch under the rollout: where its rows are, and at which rate it began
    grades-<key>.jsonl      the scores of a round

Workers read the log's end every two seconds, so a pause takes effect for all of them then. Nobody has to tell
them, and nothing is lost with the shared state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from airflow_provider_llmbatch.engine.identity import fingerprint
from airflow_provider_llmbatch.engine.journal import Entry, Journal, Person, Storage, put_json, read_json
from airflow_provider_llmbatch.engine.rollout.gate import Move, move, streaks_after
from airflow_provider_llmbatch.engine.rollout.terms import Rules, Terms
from airflow_provider_llmbatch.engine.rollout.verdict import Comparison
from airflow_provider_llmbatch.errors import InputError, StoreError

State = Literal["running", "paused"]
#: What a person can do.
Act = Literal["pause", "resume", "promote"]

_LIVE = "live-"


def entry_file(number: int) -> str:
    """Return the name of the file of a step."""
    return f"step-{number:06d}.json"


def pack_file(number: int) -> str:
    """Return the name of the file that holds many steps."""
    return f"steps-{number:04d}.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a rollout stands after its steps."""

    terms: Terms
    state: State
    #: share of the units that get the candidate now; 0 while paused
    rate: float
    #: the rate before it was paused
    rung: float
    #: rounds so far
    rounds: int = 0
    #: by metric, in how many rounds running it was worse
    streaks: Mapping[str, int] = field(default_factory=dict)
    #: keys of the live answers that earlier rounds have used
    used: frozenset[str] = frozenset()
    #: Unix seconds since which the candidate has its share without a break
    since: float = 0.0
    #: the last step, in words
    last: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Answers to production items that were given under a rollout."""

    key: str
    result_path: str
    chunk: int
    #: share of the units that should have the candidate there
    rate: float
    #: Unix seconds at which it began
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOf:
    """A round as it was logged."""

    number: int
    occasion: str
    move: Move
    comparisons: tuple[Comparison, ...]
    mismatch_p: float | None


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
    ) -> RoundOf:
        """
        Log a round and what follows from it; one that was logged on the same occasion is returned.

        :param occasion: what all tries of the task have in common until somebody clears it.
        :param used: keys of the live answers in it.
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
                **asdict(decided),
            }
            if self._add(entry):
                return self.rounds[-1]

    def act(self, act: Act, rules: Rules, *, by: Person, why: str, at: float, occasion: str = "") -> Standing:
        """
        Log what a person does: pause, resume at the lowest rung, or climb to the next one.

        :param occasion: what all tries of a task have in common until somebody clears it; what was done on
            it is not done again.
        :raises InputError: when there is nothing like that to do, or nobody does it.
        """
        if not by.name:
            raise InputError(f"Nobody is named who would {act} the rollout; only a person does that.")
        while True:
            standing = self.standing()
            if occasion and occasion in self._done:
                return standing
            if (act == "resume") != (standing.state == "paused"):
                raise InputError(
                    f"The rollout {standing.terms.name!r} is {standing.state}, so there is nothing to {act}."
                )
            rates = {"pause": 0.0, "resume": rules.ladder[0], "promote": rules.next_rate(standing.rate)}
            entry = {"type": "act", "at": at, "act": act, "rate": rates[act], "why": why, "by": asdict(by)}
            entry["occasion"] = occasion
            if self._add(entry):
                return self.standing()

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
        self._standing = kinds[entry["type"]](entry)

    def _after_round(self, entry: Entry) -> Standing:
        standing = self._known()
        comparisons = tuple(Comparison.from_json(each) for each in entry["comparisons"])
        decided = Move(action=entry["action"], rate=entry["rate"], why=entry["why"])
        logged = RoundOf(
            number=entry["number"],
            occasion=entry["occasion"],
            move=decided,
            comparisons=comparisons,
            mismatch_p=entry["mismatch_p"],
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
        state="running",
        rate=entry["rate"],
        rung=entry["rate"],
        since=entry["at"],
        last="opened",
    )


def _told(terms: Terms) -> str:
    arms: list[Any] = [terms.base, terms.candidate]
    told = " against ".join(f"{arm.prompt} ({arm.prompt.sha[:12]})" for arm in arms)
    return f"{told} by {terms.unit}"
