"""The one place that asks which Airflow runs; the floor is 3.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow import __version__ as _airflow_version
from packaging.version import Version

#: Mapped operators take ``queue`` from the operator's signature, tasks have ``task_state_store`` and
#: ``retry_policy``.
AIRFLOW_V_3_3_PLUS = Version(_airflow_version).release >= (3, 3)

if TYPE_CHECKING or AIRFLOW_V_3_3_PLUS:
    from airflow.sdk import RetryPolicy as RetryPolicy
else:

    class RetryPolicy:
        """Stands in where Airflow asks no policy about retries."""
