"""What a review task is asked to do, read from its arguments."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_llmbatch.errors import ConfigurationError, InputError
from airflow_provider_llmbatch.operators import arguments, surroundings
from airflow_provider_llmbatch.operators.batch import job_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.job import Job
    from airflow_provider_llmbatch.engine.prompt import Prompt
    from airflow_provider_llmbatch.engine.review.choose import Rules
    from airflow_provider_llmbatch.engine.review.decision import Default
    from airflow_provider_llmbatch.engine.review.terms import Terms
    from airflow_provider_llmbatch.engine.reviewing import Portion
    from airflow_provider_llmbatch.engine.summary import Manifest
    from airflow_provider_llmbatch.settings import Settings

_DEFAULTS = ("retry", "accept", "skip", "leave", "fail")
_FAILED = "failed"


class Asked:
    """
    Reads the arguments of a review task.

    :param task: a :class:`.review.LLMBatchReviewOperator`, its templates rendered.
    :param context: of its try.
    :param settings: of the installation.
    """

    def __init__(self, task: Any, context: Context, settings: Settings) -> None:
        self._task = task
        self._context = context
        self.settings = settings
        self._manifests = arguments.manifests_of("manifests", task.manifests)
        if not self._manifests:
            raise InputError("There are no manifests; give what dispatch tasks return: dispatch.output.")
        self._job: Job | None = None

    @property
    def job(self) -> Job:
        """What the dispatch tasks asked, with the first one's results."""
        if self._job is None:
            self._job = self._read_job(self._manifests[0])
        return self._job

    def _read_job(self, first: Manifest) -> Job:
        from airflow_provider_llmbatch.engine.dispatch.policy import Policy

        task, context = self._task, self._context
        return job_of(
            context,
            self.settings,
            source=self._source(first),
            prompt=task.prompt or self._prompt_of(first),
            llm_conn_id=task.llm_conn_id,
            model=arguments.optional_text(task.model) or first.model,
            output_type=task.output_type,
            model_params=task.model_params,
            result_path=first.result_path,
            sample=None,
            max_failed=1.0,
            budget_usd=arguments.dollars("budget_usd", task.budget_usd),
            occasion=arguments.occasion(context),
            policy=Policy(
                max_attempts=arguments.whole_number("max_attempts", task.max_attempts),
                max_wait_s=self.settings.max_wait,
                defer_after_s=self.settings.defer_after,
            ),
        )

    def portions(self) -> list[Portion]:
        """
        Return the results under review.

        :raises InputError: when they answer something else than the task says, or are not there.
        """
        from airflow_provider_llmbatch.engine.locations import is_local
        from airflow_provider_llmbatch.engine.reviewing import portion_of
        from airflow_provider_llmbatch.operators.storage import filesystem_of, open_source

        found = []
        for manifest in self._manifests:
            path = manifest.result_path
            if is_local(path):
                surroundings.refuse_other_hosts(self.settings, f"The result path {path}")
            job = replace(
                self.job,
                source=open_source(self._source(manifest)),
                result_path=path,
                filesystem=filesystem_of(path),
                host=surroundings.host_of(self.settings) if is_local(path) else "",
            )
            found.append(portion_of(job, manifest))
        return found

    def rules(self) -> Rules:
        """Return what is reviewed."""
        from airflow_provider_llmbatch.engine.items import Outcome
        from airflow_provider_llmbatch.engine.review.choose import read_rules

        review = self._task.review
        named = [review] if isinstance(review, str) else list(review)
        known = {outcome.value: outcome for outcome in Outcome if outcome.is_reviewable}
        outcomes = set(known.values()) if _FAILED in named else set()
        for name in named:
            if name != _FAILED:
                outcomes.add(known[arguments.choice("review", name, tuple(known))])
        return read_rules(
            frozenset(outcomes),
            arguments.optional_text(self._task.uncertain),
            arguments.share("sample", self._task.sample),
        )

    def terms(self) -> Terms:
        """
        Return what holds for a round that is opened now.

        :raises ConfigurationError: for a timeout or a quorum that leaves open what happens to the rest.
        """
        from airflow_provider_llmbatch.engine.review.terms import Terms

        task = self._task
        quorum, timeout = arguments.share("quorum", task.quorum), _seconds(task.timeout)
        default = arguments.optional_text(task.default)
        if default is not None:
            arguments.choice("default", default, _DEFAULTS)
        elif timeout is not None or quorum < 1.0:
            raise ConfigurationError(
                "default is not set; with a timeout or a quorum, say what becomes of items that nobody has "
                f"decided: {', '.join(_DEFAULTS)}."
            )
        return Terms(
            quorum=quorum,
            deadline=None if timeout is None else time.time() + timeout,
            default=cast("Default | None", default),
            max_rounds=arguments.whole_number("max_rounds", task.max_rounds),
            models=_names("models", task.models),
            prompts=self._prompts(),
            assigned=tuple((str(user["id"]), str(user["name"])) for user in task.assigned_users),
            schema=self.job.schema.document,
        )

    def prompt(self, name: str) -> Prompt:
        """Return a prompt by ``name@version``."""
        return arguments.prompt_of(name, self._context, self.settings)

    def _prompts(self) -> tuple[str, ...]:
        """Return the versions of the prompt; one that is written out has no others."""
        from airflow_provider_llmbatch.engine.prompt import versions_of

        name = self.job.prompt.ref.name
        if isinstance(self._task.prompt, Mapping):
            return ()
        found = versions_of(name, arguments.prompt_folders(self._context, self.settings))
        return tuple(f"{name}@{version}" for version in sorted(found))

    def _prompt_of(self, manifest: Manifest) -> str:
        ref = manifest.prompt
        if ref is None or ref.name == "inline":
            raise ConfigurationError(
                "prompt is not set, and the dispatch task had one that is written out; give the same here."
            )
        return str(ref)

    def _source(self, manifest: Manifest) -> str | Sequence[Mapping[str, Any]]:
        from airflow_provider_llmbatch.engine.results.answers import read_answers
        from airflow_provider_llmbatch.operators.storage import open_folder

        given = arguments.rows_or_path(self._task.source)
        if given is not None:
            return arguments.source_location(given, self._context) if isinstance(given, str) else given
        folder = open_folder(manifest.result_path, read_only=True)
        found = read_answers(folder, manifest.chunk)
        if found is None:
            raise InputError(f"There are no results of chunk {manifest.chunk} in {folder.uri}.")
        if found["source"] == "rows":
            raise ConfigurationError(
                "source is not set, and the dispatch task had been given rows; give the same rows here."
            )
        return str(found["source"])


def _names(argument: str, value: Any) -> tuple[str, ...]:
    """Read names: a list, or a text with commas between them."""
    if not isinstance(value, str):
        return tuple(map(str, value or ()))
    if value.lstrip().startswith("["):
        raise ConfigurationError(
            f"{argument} is the text {value[:60]!r}; give a list (with render_template_as_native_obj, a "
            "template can be one), or names with commas between them."
        )
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _seconds(timeout: Any) -> float | None:
    if isinstance(timeout, timedelta):
        return timeout.total_seconds()
    text = arguments.optional_text(timeout)
    return None if text is None else arguments.seconds("timeout", text)
