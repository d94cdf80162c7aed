from __future__ import annotations

import pytest

from airflow_provider_llmbatch.engine.locations import bare, connection_of, is_local


@pytest.mark.parametrize(
    ("location", "local", "connection", "without"),
    [
        ("/data/items.jsonl", True, None, "/data/items.jsonl"),
        ("items@home.jsonl", True, None, "items@home.jsonl"),
        ("file:///data/a@b", True, None, "file:///data/a@b"),
        ("local:///data", True, None, "local:///data"),
        ("s3://bucket/a", False, None, "s3://bucket/a"),
        ("s3://bucket/a@b", False, None, "s3://bucket/a@b"),
        ("s3://my_conn@Bucket/a b?c#d", False, "my_conn", "s3://Bucket/a b?c#d"),
        ("gs://my@conn@bucket/a/", False, "my@conn", "gs://bucket/a/"),
    ],
)
def test_a_location_says_what_opens_it(location: str, local: bool, connection: str | None, without: str):
    assert is_local(location) is local
    assert connection_of(location) == connection
    assert bare(location) == without
