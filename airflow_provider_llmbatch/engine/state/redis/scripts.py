"""The Lua scripts: EVALSHA, and EVAL where the server does not know them or refuses hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Protocol


class Client(Protocol):
    """What a script needs of a client."""

    async def execute_command(self, *arguments: Any) -> Any:
        """Send one command."""


#: What scripts share, put before them.
_SHARED = {
    "take": ("factor", "gates"),
    "throttle": ("factor",),
    "levels": ("factor",),
    "park": ("gates",),
}


@cache
def source(name: str) -> str:
    """Return a script's text, with what several of them share before it."""
    lua = files(__package__).joinpath("lua")
    return "".join(lua.joinpath(f"{part}.lua").read_text("utf-8") for part in (*_SHARED.get(name, ()), name))


@cache
def _sha(name: str) -> str:
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


async def run(client: Client, name: str, keys: Sequence[str], arguments: Sequence[str]) -> Any:
    """
    Run a script.

    A refused EVALSHA has not run anything, so EVAL in its place runs the script once.

    :param keys: all with one hash tag.
    """
    from redis.exceptions import NoPermissionError, NoScriptError, ResponseError

    try:
        return await client.execute_command("EVALSHA", _sha(name), len(keys), *keys, *arguments)
    except (NoScriptError, NoPermissionError):
        pass
    except ResponseError as error:
        if "unknown command" not in str(error).lower():
            raise
    return await client.execute_command("EVAL", source(name), len(keys), *keys, *arguments)
