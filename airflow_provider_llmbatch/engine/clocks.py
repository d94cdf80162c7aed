"""Clocks and chance, so that nothing else in the engine has to ask for them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Everything that differs from one run to the next without being asked for."""

    #: seconds that only go forward
    now: Callable[[], float] = time.monotonic
    #: Unix seconds
    wall: Callable[[], float] = time.time
    #: numbers from 0 to 1 that spread retries
    luck: Callable[[], float] = random.random
