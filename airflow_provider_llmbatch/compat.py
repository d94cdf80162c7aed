"""The one place that asks which Airflow runs; the floor is 3.2."""

from __future__ import annotations

from airflow import __version__ as _airflow_version
from packaging.version import Version

#: Mapped operators take ``queue`` from the operator's signature, and tasks have ``task_state_store``.
AIRFLOW_V_3_3_PLUS = Version(_airflow_version).release >= (3, 3)
