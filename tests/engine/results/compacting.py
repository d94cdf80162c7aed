"""
Put a folder's parts together and be killed at one step: ``python -m tests.engine.results.compacting FOLDER
STEP``.

Steps: ``begin``; ``draft`` (half of the new part is written); ``put`` (it has its name); ``retire-<n>``
(after so many of the old parts are removed).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping

from airflow_provider_llmbatch.engine.results.local import LocalFolder
from tests.engine.results.made import opened


class Mortal(LocalFolder):
    """
    A local folder whose process dies at one step.

    :param path: of the folder.
    :param step: when.
    """

    def __init__(self, path: str, step: str) -> None:
        super().__init__(path)
        self.step = step

    def put(self, name: str, chunks: Iterator[bytes], *, replace: bool = False) -> None:
        if not name.startswith("part-00000-0-"):
            return super().put(name, chunks, replace=replace)
        self._die("begin")
        super().put(name, self._half(list(chunks)), replace=replace)
        self._die("put")

    def retire(self, read: Mapping[str, int]) -> dict[str, bytes]:
        for number, name in enumerate(read):
            super().retire({name: read[name]})
            self._die(f"retire-{number + 1}")
        return {}

    def _half(self, chunks: list[bytes]) -> Iterator[bytes]:
        for number, chunk in enumerate(chunks):
            yield chunk * (1000 if self.step == "draft" else 1)  # more than any buffer holds back
            if number == len(chunks) // 2:
                self._die("draft")

    def _die(self, step: str) -> None:
        if step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def main(path: str, step: str) -> None:
    store = opened(Mortal(path, step))
    store.close()
    store.compact()


if __name__ == "__main__":
    main(*sys.argv[1:])
