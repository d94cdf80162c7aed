"""
Connect to Redis as it is deployed: one server, a Cluster, or behind Sentinel.

Every wait has an end, and nothing is tried again behind our back: a call that was cut off may have been
carried out, and only the caller knows how to find out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from airflow_provider_llmbatch.errors import ConfigurationError

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

#: Seconds for a connection, and for an answer.
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 5.0
#: Connections of one process.
CONNECTIONS = 16
#: Seconds of silence after which a connection is checked before it is used.
HEALTH_CHECK_S = 15

#: Shapes of the address.
EXAMPLES = (
    "redis://:password@host:6379/0",
    "rediss://… with TLS",
    "redis+cluster://host:6379",
    "redis+sentinel://host1:26379,host2:26379/service/0",
)


def connect(url: str) -> Redis | RedisCluster:
    """
    Return a client; it connects when it is used.

    :param url: see :data:`EXAMPLES`; it may hold a password, which no message shows.
    :raises ConfigurationError: for an address that cannot be read.
    """
    scheme = url.partition("://")[0]
    try:
        if scheme in ("redis", "rediss"):
            return _single(url)
        if scheme in ("redis+cluster", "rediss+cluster"):
            return _cluster(url.replace("+cluster", "", 1))
        if scheme in ("redis+sentinel", "rediss+sentinel"):
            return _sentinel(url)
    except ValueError as error:
        raise _unreadable(f"cannot be read ({type(error).__name__})") from None
    raise _unreadable(f"has the scheme {scheme!r}")


def _options() -> dict[str, Any]:
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    return {
        "socket_timeout": ANSWER_TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "health_check_interval": HEALTH_CHECK_S,
        "retry": Retry(NoBackoff(), 0),
        "decode_responses": True,
    }


def _single(url: str) -> Redis:
    from redis.asyncio import BlockingConnectionPool, Redis

    # Who finds all connections in use waits for one, instead of being told that the server is away.
    pool = BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=60, **_options())
    return Redis.from_pool(pool)


def _cluster(url: str) -> RedisCluster:
    from redis.asyncio import RedisCluster

    return RedisCluster.from_url(url, **_options())


def _sentinel(url: str) -> Redis:
    from redis.asyncio.sentinel import Sentinel

    parts = urlsplit(url)
    userinfo, _, hosts = parts.netloc.rpartition("@")
    service, _, database = parts.path.strip("/").partition("/")
    sentinels = [_host(host) for host in hosts.split(",") if host]
    if not sentinels or not service:
        raise ValueError("no sentinel or no service")
    user, _, password = userinfo.partition(":")
    options = {**_options(), "db": int(database or 0), **dict(parse_qsl(parts.query))}
    if password:
        options["password"] = unquote(password)
    if user:
        options["username"] = unquote(user)
    if parts.scheme.startswith("rediss"):
        options["ssl"] = True
    asked = {key: options[key] for key in ("socket_timeout", "socket_connect_timeout")}
    watch: Any = Sentinel
    client: Redis = watch(sentinels, sentinel_kwargs=asked).master_for(service, **options)
    return client


def _host(text: str) -> tuple[str, int]:
    name, _, port = text.rpartition(":")
    return (name, int(port)) if name else (text, 26379)


def _unreadable(problem: str) -> ConfigurationError:
    return ConfigurationError(f"The Redis address {problem}; write it like one of {', '.join(EXAMPLES)}.")
