"""
Ask the API as users of the FAB auth manager, in a process of its own, as an auth manager is chosen once.

Prints, as JSON, what everybody got.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from airflow.api_fastapi.app import cached_app, get_auth_manager
from fastapi.testclient import TestClient

from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.review.inbox import Inbox, Post
from airflow_provider_llmbatch.operators.places import inbox_folder, review_folder
from tests.engine.review.queues import NOW, failed, opened
from tests.engine.rollout.whole import NAME, close_round, rollout

API = "/llmbatch/api/v1"
READS = ("DAG Runs", "Task Instances", "HITL Detail")
ROLES = {
    "reader": [("can_read", "DAG:billing"), *(("can_read", name) for name in READS)],
    "decider": [
        *(("can_read", "DAG:billing"), ("can_edit", "DAG:billing"), ("can_edit", "HITL Detail")),
        *(("can_read", name) for name in READS),
    ],
    "stranger": [
        *(("can_read", "DAG:other"), ("can_edit", "DAG:other"), ("can_edit", "HITL Detail")),
        *(("can_read", name) for name in READS),
    ],
    "operator": [("can_read", "Connections")],
}


def queues(results_path: str) -> None:
    """Open a queue of the DAG ``billing``."""
    who = ("billing", "run-17", "review")
    opened(review_folder(results_path, *who), [failed(n) for n in range(3)])
    post = Post(dag_id=who[0], run_id=who[1], task_id=who[2], map_index=-1, opened_at=NOW)
    Inbox(open_folder(inbox_folder(results_path))).put(post, "open")


def users(manager: Any) -> dict[str, Any]:
    """Return a user of each role."""
    security = manager.security_manager
    made = {}
    for name, permissions in ROLES.items():
        role = security.add_role(name)
        for action, resource in permissions:
            security.add_permission_to_role(role, security.create_permission(action, resource))
        made[name] = security.add_user(name, name, name, f"{name}@example.com", role, hashed_password="none")
    return made


def main(results_path: str) -> None:
    """Print what everybody got."""
    queues(results_path)
    close_round(results_path, rollout(results_path))
    client = TestClient(cached_app(apps="core"), follow_redirects=False)
    manager = get_auth_manager()
    queue = f"{API}/dags/billing/runs/run-17/tasks/review/review"
    body = {"round": 1, "tickets": ["0-0"], "kind": "skip"}
    trial = f"{API}/dags/billing/rollouts/{NAME}"
    got: dict[str, dict[str, list[Any]]] = {}
    for name, user in {"nobody": None, **users(manager)}.items():
        headers = {} if user is None else {"Authorization": f"Bearer {manager.generate_jwt(user)}"}
        asked = {
            "queues": client.get(f"{API}/queues", headers=headers),
            "queue": client.get(queue, headers=headers),
            "tickets": client.get(f"{queue}/tickets", headers=headers),
            "ticket": client.get(f"{queue}/tickets/0-1", headers=headers),
            "export": client.get(f"{queue}/tickets.csv", headers=headers),
            "nowhere": client.get(queue.replace("billing", "nowhere"), headers=headers),
            "connection": client.get(f"{API}/connections/llm", headers=headers),
            "decide": client.post(f"{queue}/decisions", headers=headers, json=body),
            "rollouts": client.get(f"{API}/rollouts", headers=headers),
            "rollout": client.get(trial, headers=headers),
            "pairs": client.get(f"{trial}/rounds/1/pairs?metric=token_f1", headers=headers),
            "pause": client.post(f"{trial}/steps", headers=headers, json={"act": "pause"}),
        }
        got[name] = {what: [answer.status_code, answer.text] for what, answer in asked.items()}
    print(json.dumps(got))


main(sys.argv[1])
