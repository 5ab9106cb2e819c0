"""Commands that go on until a signal comes: they hear it, whichever thread the system wakes for it."""

from __future__ import annotations

import signal
import threading

import pytest

pytest.importorskip("grpc")

from gal.cli.nodes import ended_by_signals
from patience import LONGEST


def _strike(number: signal.Signals) -> None:
    """Sends a signal to a thread that is not the main one."""
    signal.pthread_kill(threading.get_ident(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_wakes_another_thread_ends_the_waiting(number: signal.Signals) -> None:
    with ended_by_signals() as stopping:
        striking = threading.Timer(0.2, _strike, [number])
        striking.start()
        assert stopping.wait(LONGEST)
        striking.join()


def test_a_second_interruption_waits_no_longer_and_the_first_does() -> None:
    handler, wakened = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    with ended_by_signals() as stopping:
        signal.raise_signal(signal.SIGINT)
        assert stopping.wait(LONGEST)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == handler
    assert signal.set_wakeup_fd(wakened) == -1
