"""Take items out of a queue: its tickets point to nothing then, and its texts are blank."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from airflow_provider_llmbatch.engine.journal import Entry, Storage

_TICKETS = re.compile(r"tickets-(\d+)-.*\.jsonl")
_TEXTS = re.compile(r"texts-\d+-.*\.jsonl")
_ENTRIES = re.compile(r"(?:log|pack)-(\d+)-\d+\.jsonl?")
#: What a person may have said about an item.
_SAID = ("why", "output", "model", "prompt", "max_tokens")

Line = dict[str, Any]


def erase(storage: Storage, ids: Collection[str], *, dry: bool) -> dict[str, int]:
    """
    Blank what a queue holds of some items, and return how many lines of which files that changes.

    Decisions about these items alone become decisions to skip them, so that nothing is sent or written again;
    those that are about others as well lose their reason.

    :param ids: of the items.
    :param dry: only count.
    :raises StoreError: when a file cannot be read or written.
    """
    names, changed = storage.names(), {}
    gone: dict[int, set[str]] = {}
    tickets = {name: int(match[1]) for name in names if (match := _TICKETS.fullmatch(name))}
    for name, round in tickets.items():
        gone.setdefault(round, set()).update(_gone(storage, name, ids))
    for name in names:
        if _TEXTS.fullmatch(name):
            changed[name] = _change(storage, name, partial(_texts, ids), dry)
        elif match := _ENTRIES.fullmatch(name):
            changed[name] = _change(storage, name, partial(_entry, gone.get(int(match[1]), set())), dry)
    # By the tickets the others are found, also when a kill came between.
    for name in tickets:
        changed[name] = _change(storage, name, partial(_ticket, ids), dry)
    return {name: n for name, n in changed.items() if n}


def _gone(storage: Storage, name: str, ids: Collection[str]) -> set[str]:
    with storage.open(name) as file:
        lines = map(json.loads, file.read().splitlines())
        return {f"{line['folder']}-{line['index']}" for line in lines if line["item_id"] in ids}


def _change(storage: Storage, name: str, change: Callable[[Line], Line], dry: bool) -> int:
    """Change lines, or the object that a whole file is; they keep their length, as tickets point to bytes."""
    with storage.open(name) as file:
        lines = file.read().splitlines(keepends=True)
    count = 0
    for number, line in enumerate(lines):
        old = json.loads(line)
        if (new := change(old)) != old:
            end = line[len(line.rstrip(b"\n")) :]
            written = json.dumps(new, separators=(",", ":"), allow_nan=False).encode()
            lines[number] = written.ljust(len(line) - len(end)) + end
            count += 1
    if count and not dry:
        storage.put(name, iter(lines), replace=True)
    return count


def _ticket(ids: Collection[str], line: Line) -> Line:
    if line["item_id"] not in ids:
        return line
    return {**line, "item_id": f"#{line['index']}", "group": None}


def _texts(ids: Collection[str], line: Line) -> Line:
    return {"item": {"id": ""}, "messages": None, "row": None} if line["item"]["id"] in ids else line


def _entry(gone: set[str], entry: Entry) -> Line:
    if entry.get("type") != "decision" or not gone.intersection(entry["tickets"]):
        return entry
    if gone.issuperset(entry["tickets"]):
        return {**entry, **dict.fromkeys(_SAID), "why": "", "kind": "skip"}
    return {**entry, "why": ""}
