from __future__ import annotations

import io
import random
import threading

import pytest

from airflow_provider_llmbatch.engine.results.shelf import BLOCKS_AT_MOST, OPEN_AT_MOST, Shelf


class Places:
    """
    A folder that counts what is opened and closed.

    :param read_ahead: how many files are opened ahead.
    """

    def __init__(self, read_ahead: int) -> None:
        self.read_ahead = read_ahead
        self.opened: list[str] = []
        self.open_now = self.most_open = 0
        self._lock = threading.Lock()

    def open(self, name: str) -> io.BytesIO:
        places = self

        class Counted(io.BytesIO):
            def close(self) -> None:
                with places._lock:
                    places.open_now -= not self.closed
                super().close()

        if name == "gone":
            raise FileNotFoundError(name)
        with self._lock:
            self.opened.append(name)
            self.open_now += 1
            self.most_open = max(self.most_open, self.open_now)
        return Counted(name.encode())


NAMES = [str(number) for number in range(500)]


@pytest.mark.parametrize(("ahead", "most"), [(0, OPEN_AT_MOST + 1), (8, BLOCKS_AT_MOST + 2 * 8 + 1)])
def test_files_used_in_about_the_order_of_their_names_are_hardly_ever_opened_twice(ahead: int, most: int):
    places = Places(ahead)
    order = sorted(range(500), key=lambda number: number + random.Random(number).uniform(0, 6))
    with Shelf(places, NAMES) as shelf:
        for number in order:
            for nearby in (number, max(0, number - 2)):
                assert shelf.get(nearby).getvalue() == NAMES[nearby].encode()
    assert set(places.opened) == set(NAMES)
    assert len(places.opened) < 510
    assert places.most_open <= most
    assert places.open_now == 0


@pytest.mark.parametrize("ahead", [0, 8])
def test_a_row_far_ahead_costs_one_look(ahead: int):
    places = Places(ahead)
    with Shelf(places, NAMES) as shelf:
        for number in range(100):
            shelf.get(number)
            if number % 10 == 0:
                shelf.get(400 + number // 10)
    assert len(places.opened) <= 100 + 10 + ahead
    assert places.open_now == 0


def test_files_that_are_skipped_are_not_held_for_ever():
    places = Places(8)
    with Shelf(places, NAMES) as shelf:
        for number in range(0, 500, 5):
            shelf.get(number)
    assert places.most_open <= BLOCKS_AT_MOST + 2 * 8 + 1
    assert places.open_now == 0


@pytest.mark.parametrize("ahead", [0, 8])
def test_a_file_that_is_gone_is_told_when_it_is_its_turn(ahead: int):
    places = Places(ahead)
    with Shelf(places, ["a", "gone", "b"]) as shelf:
        assert shelf.get(0).read() == b"a"
        with pytest.raises(FileNotFoundError):
            shelf.get(1)
        assert shelf.get(2).read() == b"b"
    assert places.open_now == 0
