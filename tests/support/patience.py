"""How long tests wait for what must come: one variable stretches every deadline on a slow or busy machine.

    GAL_TEST_PATIENCE=5 make test

Deadlines that a test wants to pass are stretched too: a process in time needs longer there as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

PATIENCE = float(os.environ.get("GAL_TEST_PATIENCE", "1"))
"""What every number of seconds in the tests is multiplied by."""


def patient(seconds: float) -> float:
    """So many seconds on a machine that has nothing else to do, and more where the variable says so."""
    return seconds * PATIENCE


LONGEST = patient(120.0)
"""Seconds after which something that is waited for will not come any more."""


def until(ready: Callable[[], bool], what: str, seconds: float = LONGEST) -> None:
    """Wait until something is so; an error says what was waited for."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.01)
