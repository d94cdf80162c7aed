"""An item under review is erased: from tickets, from what was asked, from what people wrote."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_llmbatch.engine import erasing
from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.review.decision import Wish
from airflow_provider_llmbatch.engine.review.queue import Queue
from tests.engine.rehearsal import dispatched, job, simulated
from tests.engine.reviews import Review, failing

CANARY = "Ann-Canary"


def content(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())


async def test_an_item_under_review_leaves_neither_its_texts_nor_what_was_written_about_it(tmp_path):
    source = [
        {"id": f"{CANARY}-{n}" if n < 2 else f"b{n}", "vars": {"text": f"row {n:04d}"}} for n in range(5)
    ]
    with simulated(*failing(range(4), reply={"refusal": "No."})) as simulator:
        work = job(source, simulator.url, tmp_path, policy={"max_attempts": 1})
        review = Review(work, (await dispatched(work)).manifest, tmp_path / "review")
        review.open()
        review.decide(Wish(kind="edit", output=f"{CANARY} wrote", why=f"because {CANARY}"), 0)
        review.decide(Wish(kind="skip", why=f"{CANARY} and another"), 1, 2)
        review.decide(Wish(kind="edit", output="fine", why="kept"), 3)
        await review.carry_out()
    assert CANARY.encode() in content(tmp_path)

    ids = {f"{CANARY}-0", f"{CANARY}-1"}
    folders = [open_folder(str(tmp_path / name)) for name in ("results", "review")]
    list(erasing.erase_items(folders, ids))
    assert CANARY.encode() not in content(tmp_path)
    assert [row.outcome for row in review.rows] == [Outcome.SKIPPED] * 3 + [Outcome.EDITED, Outcome.OK]

    queue = Queue(open_folder(str(tmp_path / "review")))
    queue.refresh()
    round = queue.round()
    assert [ticket.item_id for ticket in round.tickets.values()] == ["#0", "#1", "b2", "b3"]
    decided = {id: round.decisions[id].wish for id in round.tickets}
    assert [decided[id].kind for id in round.tickets] == ["skip", "skip", "skip", "edit"]
    assert (decided["0-3"].output, decided["0-3"].why) == ("fine", "kept")
    texts = [round.texts(ticket) for ticket in round.tickets.values()]
    assert [text["row"] is None for text in texts] == [True, True, False, False]
    assert [bool(text["messages"]) for text in texts] == [False, False, True, True]
    assert not list(erasing.erase_items(folders, {*ids, "#0", "#1"}))
