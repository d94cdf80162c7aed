from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contracts.states import IMPLEMENTATIONS, Store


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with IMPLEMENTATIONS[request.param](tmp_path) as opened:
        yield opened
