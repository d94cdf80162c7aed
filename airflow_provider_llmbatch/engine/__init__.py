"""The batch engine. It knows nothing of Airflow; open :mod:`.run` first."""
