"""Where files are: a path, or a URL, which may name the connection that opens it before an ``@``."""

from __future__ import annotations

from urllib.parse import urlsplit

_LOCAL_SCHEMES = ("file", "local")


def is_local(location: str) -> bool:
    """Whether a path or URL lies on a disk of this host."""
    scheme, separator, _ = location.partition("://")
    return not separator or scheme in _LOCAL_SCHEMES


def connection_of(location: str) -> str | None:
    """Return the id of the connection that a URL names, None when it names none."""
    return None if is_local(location) else urlsplit(location).netloc.rpartition("@")[0] or None


def bare(location: str) -> str:
    """Return a URL without its connection, as a file system reads it."""
    if connection_of(location) is None:
        return location
    parts = urlsplit(location)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
