"""
The files of a queue, in the folder of its task.

::

    texts-<round>-<try>-<n>.jsonl   what was asked and answered, one line a ticket
    tickets-<round>-<try>.jsonl     the tickets
    round-<round>.json              opens the round, and names the try whose tickets count
    log-<round>-<number>.json       one entry: a decision, or the end of the round
    pack-<round>-<n>.jsonl          the entries of a hundred such files, so that they are read at once
    applied-<round>.json            what was decided has been done
    alerted-<round>.json            somebody was told
    done.json                       the review is over, and what came of it

All but ``done.json`` are created once and never changed. So the number of the next entry is what two
reviewers compete for, whatever processes serve them: one gets it, the other reads what was decided.
"""

from __future__ import annotations

DONE_FILE = "done.json"


def texts_file(round: int, attempt: str, number: int) -> str:
    """Return the name of a file of texts."""
    return f"texts-{round:02d}-{attempt}-{number:04d}.jsonl"


def tickets_file(round: int, attempt: str) -> str:
    """Return the name of the file of tickets."""
    return f"tickets-{round:02d}-{attempt}.jsonl"


def round_file(round: int) -> str:
    """Return the name of the file that opens a round."""
    return f"round-{round:02d}.json"


def entry_file(round: int, number: int) -> str:
    """Return the name of the file of a log entry."""
    return f"log-{round:02d}-{number:06d}.json"


def pack_file(round: int, number: int) -> str:
    """Return the name of the file that holds many entries."""
    return f"pack-{round:02d}-{number:04d}.jsonl"


def applied_file(round: int) -> str:
    """Return the name of the file that says that a round's decisions are done."""
    return f"applied-{round:02d}.json"


def alerted_file(round: int) -> str:
    """Return the name of the file that says that somebody was told of a round."""
    return f"alerted-{round:02d}.json"
