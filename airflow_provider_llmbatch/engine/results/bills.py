"""
The bill of a chunk: what its ledger adds up to, kept beside it, so that nobody reads a million lines to know.

The ledger is the truth. A bill counts only as long as it speaks of the very ledgers that are there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from airflow_provider_llmbatch.engine.items import SCHEMA_VERSION
from airflow_provider_llmbatch.engine.results import names, resume
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.spending import Spending, Spent

#: Names of ledger files with their bytes.
Ledgers = Mapping[str, int]


def ledgers_of(sizes: Mapping[str, int]) -> dict[int, dict[str, int]]:
    """
    Return the ledgers of each chunk.

    :param sizes: bytes of all files of a folder by their names.
    """
    found: dict[int, dict[str, int]] = {}
    for text, size in sizes.items():
        name = names.parse(text)
        if name is not None and name.kind == "ledger":
            found.setdefault(name.chunk, {})[text] = size
    return found


def put(folder: Folder, chunk: int, spending: Spending, ledgers: Ledgers) -> None:
    """
    Keep what a chunk has cost.

    :param ledgers: what was added up.
    :raises StoreError: when it cannot be written.
    """
    rows = [spent.to_json() for spent in spending.rows()]
    bill = {"schema_version": SCHEMA_VERSION, "ledgers": _digest(ledgers), "spent": rows}
    folder.put(names.bill_file(chunk), iter([json.dumps(bill).encode()]), replace=True)


def read(folder: Folder, chunk: int, ledgers: Ledgers) -> list[Spent] | None:
    """
    Return what a bill says; None when there is none, or it speaks of other ledgers.

    :raises StoreError: when the storage cannot be read.
    """
    try:
        with folder.open(names.bill_file(chunk)) as file:
            bill = json.loads(file.read())
        if bill["schema_version"] != SCHEMA_VERSION or bill["ledgers"] != _digest(ledgers):
            return None
        return [Spent.from_json(row) for row in bill["spent"]]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, ArithmeticError):
        # The ledger says the same, and takes longer.
        return None


def add_up(folder: Folder, ledgers: Ledgers) -> list[Spent]:
    """
    Return what the lines of some ledgers add up to.

    :raises StoreError: for a line that cannot be read.
    """
    parsed = sorted(name for name in map(names.parse, ledgers) if name is not None)
    return resume.steadily(folder, lambda: resume.totals(folder, parsed)).spending.rows()


def _digest(ledgers: Ledgers) -> str:
    lines = "".join(f"{name} {size}\n" for name, size in sorted(ledgers.items()))
    return hashlib.sha256(lines.encode()).hexdigest()
