"""Ten thousand tickets in a real browser."""

from __future__ import annotations

import os

import pytest

from airflow_provider_llmbatch.engine.items import Outcome
from tests.console.conftest import REVIEW
from tests.engine.review.queues import failed

#: Milliseconds on two cores that do nothing else; here they may do.
FIRST_MS, FILTER_MS = 1500, 500
LENIENCE = 1 + (os.getloadavg()[0] > 1.5) * 3


@pytest.mark.alone
def test_ten_thousand_tickets_are_shown_and_filtered_fast(visit, open_queue):
    open_queue([failed(n, Outcome.REFUSED if n % 2 else Outcome.INVALID_OUTPUT) for n in range(10_000)])
    page = visit(REVIEW)
    page.locator("tbody tr").first.wait_for()
    first = page.evaluate("performance.now()")
    filtered = page.evaluate(
        """async () => {
            const began = performance.now();
            const control = document.querySelector("select:has([value=refused])");
            control.value = "refused";
            control.dispatchEvent(new Event("change"));
            while (!document.body.textContent.includes("of 5,000")) await new Promise(requestAnimationFrame);
            return performance.now() - began;
        }"""
    )
    print(f"first view {first:.0f} ms, filter {filtered:.0f} ms, load {os.getloadavg()[0]:.1f}")
    assert first <= FIRST_MS * LENIENCE
    assert filtered <= FILTER_MS * LENIENCE
