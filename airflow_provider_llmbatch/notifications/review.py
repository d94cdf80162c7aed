"""Tell people that items wait for them, wherever they are: chats, letters, webhooks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, BaseNotifier
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from airflow_provider_llmbatch.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import Connection, Context

TITLE = "{{ review.tickets }} items of {{ dag.dag_id }} wait for a decision"
BODY = """Run {{ run_id }}, task {{ ti.task_id }}, round {{ review.round }}:
{% for outcome, number in review.outcomes.items() -%}
{{ number }} {{ outcome }}{{ ", " if not loop.last else "." }}
{%- endfor %}
{{ review.link }}"""


class LLMBatchReviewNotifier(BaseNotifier):
    """
    Send a message through `Apprise <https://github.com/caronc/apprise>`_; needs the ``alerts`` extra.

    Where to is in a connection, as it holds secrets: its password has the addresses, one a line, or its extra
    a ``config`` as Airflow's own connections of type ``apprise`` have it. Addresses look like
    ``slack://…``, ``workflows://…`` (Teams), ``wecombot://…``, ``dingtalk://…``, ``feishu://…``,
    ``mailtos://…``, ``json://…`` or ``jsons://…`` (webhooks).

    What cannot be delivered is told in the log; it never fails the task.

    :param conn_id: the connection.
    :param title: template of the title.
    :param body: template of the message.
    :param tag: only addresses with this tag, where the connection's config has tags.
    """

    template_fields: Sequence[str] = ("conn_id", "title", "body", "tag")

    def __init__(
        self,
        *,
        conn_id: str = "llmbatch_alerts",
        title: str = TITLE,
        body: str = BODY,
        tag: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.title = title
        self.body = body
        self.tag = tag

    def notify(self, context: Context) -> None:
        """Send the message."""
        try:
            problem = self._send()
        # drivers of a hundred services raise what they like
        except Exception as error:
            problem = str(error)
        if problem is not None:
            self.log.warning("Nobody was told: %s", problem)

    def _send(self) -> str | None:
        """Send, and return what went wrong."""
        try:
            import apprise
        except ImportError:
            return "install airflow-provider-llmbatch[alerts] where tasks run."
        messenger = apprise.Apprise()
        for address, tag in self._addresses():
            mask_secret(address)
            if not messenger.add(address, tag=tag):
                return f"connection {self.conn_id!r} has an address that cannot be read; look at its form."
        tag = self.tag or apprise.common.MATCH_ALL_TAG
        if messenger.notify(title=self.title, body=self.body, tag=tag):
            return None
        return f"not every address of connection {self.conn_id!r} has taken the message."

    def _addresses(self) -> Iterator[tuple[str, Any]]:
        try:
            connection = BaseHook.get_connection(self.conn_id)
        except AirflowNotFoundException as error:
            raise ConfigurationError(f"there is no connection {self.conn_id!r}.") from error
        for address in (connection.password or "").split():
            yield address, None
        for one in _config(connection):
            yield str(one["path"]), one.get("tag")


def _config(connection: Connection) -> list[dict[str, Any]]:
    """Return the addresses in the form of Airflow's apprise provider."""
    config = connection.extra_dejson.get("config") or []
    if isinstance(config, str):
        config = json.loads(config)
    return [config] if isinstance(config, dict) else list(config)
