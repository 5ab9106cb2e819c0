"""Commands that go on until a signal comes: they hear it, whichever thread the system wakes for it."""

from __future__ import annotations

import signal

import pytest

pytest.importorskip("grpc")

from gal.cli.nodes import stop_event
from patience import LONGEST


def test_a_second_interruption_waits_no_longer_and_the_first_does() -> None:
    handler = signal.getsignal(signal.SIGINT)
    with stop_event() as stopping:
        signal.raise_signal(signal.SIGINT)
        assert stopping.wait(LONGEST)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == handler
