"""From Airflow's Redis connection to the address of our state; its own hook sets no time-outs."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from airflow_provider_llmbatch.errors import ConfigurationError

#: Extra fields of the connection that are passed on to the client.
_TLS = ("ssl_cert_reqs", "ssl_ca_certs", "ssl_keyfile", "ssl_certfile", "ssl_check_hostname")
_DEFAULT_PORT = 6379


def redis_url(redis_conn_id: str) -> str:
    """
    Return the address behind a connection of type ``redis``; it may hold a password.

    Beside the fields of Airflow's Redis provider (``db``, ``ssl``, ``cluster``, …) the extra ``sentinel``
    names the service behind the sentinels, whose addresses then stand in ``startup_nodes`` or the host.

    :raises ConfigurationError: when there is no host.
    """
    connection = BaseHook.get_connection(redis_conn_id)
    extra: dict[str, Any] = connection.extra_dejson
    if not connection.host:
        raise ConfigurationError(
            f"Connection {redis_conn_id!r} ([llmbatch] redis_conn_id) has no host; set it to the server's."
        )
    if connection.password:
        mask_secret(connection.password)
    userinfo = ""
    if connection.password:
        userinfo = f"{quote(connection.login or '', safe='')}:{quote(connection.password, safe='')}@"
    scheme = "rediss" if extra.get("ssl") else "redis"
    hosts = f"{connection.host}:{connection.port or _DEFAULT_PORT}"
    query = urlencode({name: extra[name] for name in _TLS if name in extra})
    suffix = f"?{query}" if query else ""
    if service := extra.get("sentinel"):
        hosts = extra.get("startup_nodes") or hosts
        return f"{scheme}+sentinel://{userinfo}{hosts}/{service}/{extra.get('db') or 0}{suffix}"
    if extra.get("cluster"):
        return f"{scheme}+cluster://{userinfo}{hosts}{suffix}"
    return f"{scheme}://{userinfo}{hosts}/{extra.get('db') or 0}{suffix}"
