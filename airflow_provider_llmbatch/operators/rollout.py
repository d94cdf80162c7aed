"""Rollout: open a trial of two prompt versions, close its rounds, and do what a person wants of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier, BaseOperator

from airflow_provider_llmbatch.errors import ConfigurationError, InputError
from airflow_provider_llmbatch.operators import arguments
from airflow_provider_llmbatch.operators.fate import decided
from airflow_provider_llmbatch.operators.telling import tell
from airflow_provider_llmbatch.operators.trial import grade_extra, open_steps
from airflow_provider_llmbatch.settings import queue_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.journal import Person
    from airflow_provider_llmbatch.engine.rollout.standing import RoundOf, Standing
    from airflow_provider_llmbatch.engine.rollout.steps import Steps
    from airflow_provider_llmbatch.engine.rollout.terms import Rules, Terms, Version
    from airflow_provider_llmbatch.settings import Settings

#: Where such tasks run, unless one names a queue.
QUEUE = queue_of("cpu_queue")
_ACTS = ("pause", "resume", "promote")


class LLMBatchRolloutOperator(BaseOperator):
    """
    Open a rollout, or, given grades, close a round of it; returns where it stands.

    What is sent under ``prompt="rollout:<name>"`` follows it. A round in which no metric is worse takes it a
    rung up; a metric that is worse in two rounds running pauses it, for all workers within seconds. Only a
    person resumes it.

    :param rollout: its name; one of the DAG's own.
    :param base: the version in use, as ``name@version``, or a mapping with ``prompt`` and ``params``.
    :param candidate: the one on trial, likewise.
    :param unit: what is assigned together: ``item``, ``group``, ``vars.<name>`` or ``metadata.<name>``.
    :param grades: what a :class:`.grade.LLMBatchGradeOperator` returned; None opens the rollout.
    :param ladder: shares of the units that get the candidate, one after the other.
    :param thresholds: by metric, how much worse it may be; see ``docs/rollout.md`` for the usual ones.
    :param min_new: new answers of each arm below which a metric is ``not_enough``.
    :param promotes: whether rungs are climbed without a person.
    :param action: ``pause``, ``resume`` or ``promote``, of a run that a person has triggered.
    :param why: their reason.
    :param notifiers: are told when a round pauses the rollout or moves it up, and, when the task runs next,
        what people have done; their templates can read ``rollout`` (name, state, rate, round, action, why, by
        whom, verdicts).
    :param queue: queue of the worker; ``[llmbatch] cpu_queue`` when left out.
    """

    template_fields: Sequence[str] = (
        "rollout",
        "base",
        "candidate",
        "unit",
        "grades",
        "ladder",
        "thresholds",
        "min_new",
        "promotes",
        "action",
        "why",
    )
    ui_color = "#ece4f0"

    def __init__(
        self,
        *,
        rollout: str,
        base: str | Mapping[str, Any],
        candidate: str | Mapping[str, Any],
        unit: str = "item",
        grades: Mapping[str, Any] | None = None,
        ladder: Sequence[float] | None = None,
        thresholds: Mapping[str, float] | None = None,
        min_new: int | str | None = None,
        promotes: bool | str = True,
        action: str | None = None,
        why: str = "",
        notifiers: BaseNotifier | Sequence[BaseNotifier] = (),
        queue: str = QUEUE,
        **kwargs: Any,
    ) -> None:
        super().__init__(queue=queue, **kwargs)
        self.rollout = rollout
        self.base = base
        self.candidate = candidate
        self.unit = unit
        self.grades = grades
        self.ladder = ladder
        self.thresholds = thresholds
        self.min_new = min_new
        self.promotes = promotes
        self.action = action
        self.why = why
        self.notifiers = [notifiers] if isinstance(notifiers, BaseNotifier) else list(notifiers)

    def execute(self, context: Context) -> dict[str, Any]:
        """Open it, do what a person wants, or close a round; return where it stands."""
        from airflow_provider_llmbatch.settings import load_settings

        with decided():
            settings = load_settings()
            terms, rules = self._terms(context, settings), self._rules()
            steps = open_steps(terms.dag, terms.name, settings)
            steps.open(terms, rules, at=time.time())
            if self.grades:
                self._tell_of_people(context, steps)
                return self._close_round(context, steps, rules)
            self._act(context, steps, rules)
            self._tell_of_people(context, steps)
            standing = steps.standing()
            self.log.info("%s", _told(standing))
            return _value(standing)

    def _close_round(self, context: Context, steps: Steps, rules: Rules) -> dict[str, Any]:
        from airflow_provider_llmbatch.engine.identity import fingerprint
        from airflow_provider_llmbatch.operators.rollouts import read_sheet
        from airflow_provider_llmbatch.operators.storage import open_folder

        with grade_extra():
            from airflow_provider_llmbatch.engine.rollout.compare import compare
        parent, name = self._where_grades_are()
        sheet, occasion = read_sheet(open_folder(parent, read_only=True), name), arguments.occasion(context)
        seed = int(fingerprint("seed", self.rollout, occasion)[:8], 16)
        number = steps.standing().rounds
        closed = steps.close_round(
            compare(sheet.scores, rules, seed=seed),
            rules,
            occasion=occasion,
            used=sheet.used,
            mismatch_p=sheet.mismatch_p,
            at=time.time(),
            grades=name,
        )
        for comparison in closed.comparisons:
            self.log.info("%s", comparison.told())
        standing = steps.standing()
        self.log.info("%s", _told(standing))
        value = _value(standing, closed)
        if closed.number > number and closed.move.action != "hold":
            tell(self.notifiers, context, {"rollout": value}, self.log)
        return value

    def _where_grades_are(self) -> tuple[str, str]:
        """Return the folder of the grades, and the name of their file."""
        if not isinstance(self.grades, Mapping) or "grades" not in self.grades:
            raise InputError("grades are none; give what an LLMBatchGradeOperator returns: grade.output.")
        uri = str(self.grades["grades"])
        parent, _, name = uri.rpartition("/")
        return parent, name

    def _tell_of_people(self, context: Context, steps: Steps) -> None:
        """Tell what people have done since a task of the rollout has last told it."""
        for step in steps.untold() if self.notifiers else ():
            standing = steps.standing()
            value = {**_value(standing), "state": step.state, "rate": step.rate, "round": standing.rounds}
            told = {"action": step.action, "why": step.why, "by": step.by.name, "verdicts": {}}
            tell(self.notifiers, context, {"rollout": {**value, **told}}, self.log)

    def _act(self, context: Context, steps: Steps, rules: Rules) -> None:
        action = arguments.optional_text(self.action)
        if action is None:
            return
        arguments.choice("action", action, _ACTS)
        steps.act(
            action,  # type: ignore[arg-type]
            rules,
            by=_person(context),
            why=str(self.why),
            occasion=arguments.occasion(context),
            at=time.time(),
        )

    def _terms(self, context: Context, settings: Settings) -> Terms:
        from airflow_provider_llmbatch.engine.rollout.terms import Terms

        return Terms(
            dag=arguments.run_ref(context).dag,
            name=str(self.rollout),
            base=_version("base", self.base, context, settings),
            candidate=_version("candidate", self.candidate, context, settings),
            unit=str(self.unit),
        )

    def _rules(self) -> Rules:
        from airflow_provider_llmbatch.engine.rollout.terms import Rules

        given: dict[str, Any] = {}
        try:
            if self.ladder:
                given["ladder"] = tuple(float(rung) for rung in self.ladder)
            given["thresholds"] = {
                name: float(limit) for name, limit in arguments.mapping("thresholds", self.thresholds).items()
            }
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"ladder is {self.ladder!r} and thresholds are {self.thresholds!r}; both hold numbers."
            ) from error
        least = arguments.optional_whole_number("min_new", self.min_new, least=2)
        if least is not None:
            given["min_new"] = least
        return Rules(promotes=arguments.yes_or_no("promotes", self.promotes), **given)


def _version(name: str, value: Any, context: Context, settings: Settings) -> Version:
    from airflow_provider_llmbatch.engine.rollout.terms import Version

    given = {"prompt": value} if isinstance(value, str) else dict(arguments.mapping(name, value))
    if not isinstance(given.get("prompt"), str) or set(given) - {"prompt", "params"}:
        raise ConfigurationError(
            f"{name} is {str(value)[:80]!r}; give 'name@version', or a mapping with that as 'prompt' and "
            "with 'params'."
        )
    found = arguments.prompt_of(given["prompt"], context, settings)
    return Version(prompt=found.ref, params=arguments.mapping(f"{name} params", given.get("params")))


def _person(context: Context) -> Person:
    """
    Return who has triggered the run.

    :raises InputError: when nobody has: what is scheduled is no person.
    """
    from airflow_provider_llmbatch.engine.journal import Person

    run: Any = context.get("dag_run")
    name = getattr(run, "triggering_user_name", None) if run is not None else None
    if not name or getattr(run, "run_type", "") != "manual":
        raise InputError(
            "action is set, and no person has triggered this run; trigger the DAG by hand, with the action "
            "as its parameter."
        )
    return Person(id=str(name), name=str(name))


def _told(standing: Standing) -> str:
    return (
        f"Rollout {standing.terms.name!r} ({standing.terms.base.prompt} against "
        f"{standing.terms.candidate.prompt}) is {standing.state}, {standing.rate:.0%} of the units get the "
        f"candidate; {standing.last}."
    )


def _value(standing: Standing, closed: RoundOf | None = None) -> dict[str, Any]:
    value: dict[str, Any] = {
        "rollout": standing.terms.name,
        "state": standing.state,
        "rate": standing.rate,
        "rounds": standing.rounds,
    }
    if closed is not None:
        value |= {
            "round": closed.number,
            "action": closed.move.action,
            "why": closed.move.why,
            "by": "",
            "verdicts": {each.metric: str(each.verdict) for each in closed.comparisons},
        }
    return value
