"""Airflow's Redis connection becomes the address of our state."""

from __future__ import annotations

import json

import pytest

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.hooks.state import redis_url


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        ({"host": "redis"}, "redis://redis:6379/0"),
        ({"host": "r", "port": 7000, "extra": {"db": 3}}, "redis://r:7000/3"),
        ({"host": "r", "password": "p@ss/w"}, "redis://:p%40ss%2Fw@r:6379/0"),
        ({"host": "r", "login": "u", "password": "p"}, "redis://u:p@r:6379/0"),
        (
            {"host": "r", "extra": {"ssl": True, "ssl_ca_certs": "/ca.pem"}},
            "rediss://r:6379/0?ssl_ca_certs=%2Fca.pem",
        ),
        ({"host": "r", "extra": {"cluster": True}}, "redis+cluster://r:6379"),
        (
            {"host": "r", "extra": {"sentinel": "main", "startup_nodes": "a:26379,b:26379", "db": 1}},
            "redis+sentinel://a:26379,b:26379/main/1",
        ),
    ],
)
def test_an_address_is_made_of_the_connections_fields(monkeypatch, connection, url):
    monkeypatch.setenv("AIRFLOW_CONN_STATE", json.dumps({"conn_type": "redis", **connection}))
    assert redis_url("state") == url


def test_a_connection_without_a_host_is_refused(monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_STATE", json.dumps({"conn_type": "redis"}))
    with pytest.raises(ConfigurationError, match="has no host"):
        redis_url("state")
