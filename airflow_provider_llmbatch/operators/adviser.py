"""The adviser of a fusion: asks the model of a connection which of several plans it would take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_llmbatch.operators import arguments
from airflow_provider_llmbatch.operators.batch import job_of
from airflow_provider_llmbatch.operators.bridge import Bridge
from airflow_provider_llmbatch.operators.sending import send

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.observe.log import Log
    from airflow_provider_llmbatch.engine.summary import Manifest
    from airflow_provider_llmbatch.settings import Settings

#: Seconds that the answer may take, with all waits; the run goes on without it then.
TIMEOUT_S = 60.0


class Adviser:
    """
    Asks once for a run: the answer is stored below the results, and a retry reads it there.

    :param llm_conn_id: connection, which names the model as well.
    :param result_path: of the fusion.
    :param log: of the task.
    """

    def __init__(
        self, llm_conn_id: str, result_path: str, context: Context, settings: Settings, log: Log
    ) -> None:
        self._conn_id, self._place = llm_conn_id, f"{result_path.rstrip('/')}/plan-adviser"
        self._context, self._settings, self._log = context, settings, log
        self._bridge: Bridge[Manifest] = Bridge()

    def __call__(self, question: Mapping[str, Any]) -> Any:
        """
        Return what the model answers, checked against the form of an answer; None when that is no answer.

        :raises Exception: whatever keeps it from being asked.
        """
        from airflow_provider_llmbatch.engine.dispatch.policy import Policy
        from airflow_provider_llmbatch.engine.fusion.adviser import ANSWER, PROMPT
        from airflow_provider_llmbatch.engine.results.read import results
        from airflow_provider_llmbatch.operators.storage import open_folder

        job = job_of(
            self._context,
            self._settings,
            source=[{"id": "plan", "vars": {"question": json.dumps(question)}}],
            prompt=dict(PROMPT),
            llm_conn_id=self._conn_id,
            model=None,
            output_type=dict(ANSWER),
            model_params={},
            result_path=self._place,
            sample=None,
            max_failed=1.0,
            policy=Policy(max_attempts=2, max_wait_s=TIMEOUT_S),
            occasion=arguments.occasion(self._context),
        )
        manifest = send(job, 1, self._settings, self._log, self._bridge, timeout_s=TIMEOUT_S)
        found = results(open_folder(manifest.result_path, read_only=True), chunks=[manifest.chunk])
        answer = next(iter(found))
        if not answer.outcome.is_good:
            self._log.warning("The plan adviser gave no answer: %s", answer.outcome.value)
            return None
        return answer.output

    def cancel(self) -> None:
        """Stop asking; from any thread."""
        self._bridge.cancel()
