"""What tests of models that are learned after the last round ask of a network: all rows predicted, a few of
them online, and a learning that is interrupted twice.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gal.alignment import row_ids
from gal.errors import LearningInterruptedError
from gal.node.store.state import TaskRecord
from patience import LONGEST
from small_network import ROW_ID, Network


def outputs(network: Network, record: TaskRecord, **how: Any) -> Any:
    """What is predicted of all rows of the clinic."""
    ids = row_ids(network.tables["clinic"][ROW_ID].to_numpy(), "clinic", "ids")
    fresh = network.nodes["clinic"].state.find_task(record.name)
    return network.holder.predictor.predict(fresh, ids, seconds=LONGEST, **how)


def interrupted_twice(network: Network, record: TaskRecord, *, after: int, within: str) -> dict[str, Any]:
    """A learning that ends after a round, then within what is called so, and goes on."""
    network.wait_until_joined(record)
    stopping = threading.Event()

    def stop_after_the_round(event: Any) -> None:
        if event["event"] == "round" and event["round"] >= after:
            stopping.set()

    with pytest.raises(LearningInterruptedError):
        network.learn(record.name, on_event=stop_after_the_round, stopping=stopping)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(within, interrupted)
        with pytest.raises(KeyboardInterrupt):
            network.learn(record.name)
    return network.learn(record.name)
