"""Claims in Redis: small hashes of questions, each step one script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from airflow_provider_llmbatch.engine.state.claims import HELD_S, KEPT_S, Claimed, Pointer
from airflow_provider_llmbatch.engine.state.redis.keys import VERSION
from airflow_provider_llmbatch.engine.state.redis.state import RedisState

#: Hashes that the questions are spread over: at a million, 61 in each, which Redis packs tightly.
BUCKETS = 1 << 14


class RedisClaims:
    """
    Claims on the server of a :class:`.state.RedisState`.

    :param state: reaches the server.
    """

    def __init__(self, state: RedisState) -> None:
        self._state = state
        self._paths: dict[str, str] = {}

    async def claim(self, question: str, holder: str, *, fence: int, held_s: float = HELD_S) -> Claimed:
        """See :meth:`..claims.Claims.claim`."""
        bucket, field = _place(question)
        arguments = [field, _short(holder), str(fence), _ms(held_s), _ms(KEPT_S)]
        while True:
            verdict, value = await self._state.script("claim", [bucket], arguments)
            if verdict != "answered":
                return Claimed(won=verdict == "won", held_s=int(value or 0) / 1000)
            if (answer := await self._pointer(value)) is not None:
                return Claimed(answer=answer)
            # The name of its folder is gone, so nobody finds the answer any more.
            await self._state.command("HDEL", bucket, field)

    async def look(self, question: str) -> Pointer | None:
        """See :meth:`..claims.Claims.look`."""
        bucket, field = _place(question)
        value = await self._state.script("claim_look", [bucket], [field])
        return await self._pointer(value) if value else None

    async def renew(self, questions: Sequence[str], holder: str, *, held_s: float = HELD_S) -> None:
        """See :meth:`..claims.Claims.renew`."""
        for question in questions:
            await self._change(question, holder, "renew", held_s)

    async def answer(self, question: str, holder: str, pointer: Pointer, *, kept_s: float = KEPT_S) -> None:
        """See :meth:`..claims.Claims.answer`."""
        name = _short(pointer.path)
        if name not in self._paths:
            await self._state.command("SET", _path_key(name), pointer.path, "PX", _ms(2 * kept_s))
            self._paths[name] = pointer.path
        await self._change(question, holder, "answer", kept_s, f"{name} {pointer.chunk} {pointer.index}")

    async def release(self, questions: Sequence[str], holder: str) -> None:
        """See :meth:`..claims.Claims.release`."""
        for question in questions:
            await self._change(question, holder, "release", 0.0)

    async def forget(self, question: str, pointer: Pointer) -> None:
        """See :meth:`..claims.Claims.forget`."""
        bucket, field = _place(question)
        await self._state.command("HDEL", bucket, field)

    async def forget_folder(self, path: str) -> None:
        """See :meth:`..claims.Claims.forget_folder`; its name goes, and with it what its answers say."""
        name = _short(path)
        self._paths.pop(name, None)
        await self._state.command("DEL", _path_key(name))

    async def _change(self, question: str, holder: str, what: str, seconds: float, value: str = "") -> None:
        bucket, field = _place(question)
        await self._state.script("claim_change", [bucket], [field, _short(holder), what, _ms(seconds), value])

    async def _pointer(self, value: str) -> Pointer | None:
        name, chunk, index = value.split(" ")
        if name not in self._paths:
            path = await self._state.command("GET", _path_key(name))
            if path is None:
                return None
            self._paths[name] = path
        return Pointer(path=self._paths[name], chunk=int(chunk), index=int(index))


def bucket_of(question: str) -> tuple[int, str]:
    """Return the number of the hash that a question lies in, and its field there."""
    digest = hashlib.sha256(question.encode()).digest()
    return int.from_bytes(digest[:2]) % BUCKETS, base64.b85encode(digest[2:14]).decode()


def _place(question: str) -> tuple[str, str]:
    bucket, field = bucket_of(question)
    return f"{VERSION}:claims:{{{bucket}}}", field


def _short(name: str) -> str:
    """Return a name of fixed length: tasks and paths have long ones, and come a million times."""
    return hashlib.sha256(name.encode()).hexdigest()[:10]


def _path_key(name: str) -> str:
    return f"{VERSION}:path:{{{name}}}"


def _ms(seconds: float) -> str:
    return str(max(0, round(seconds * 1000)))
