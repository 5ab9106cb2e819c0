"""What tests of models that are learned after the last round ask of a network: all rows predicted, a few of
them online, and a learning that is interrupted twice.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from typing import Any

import pytest

from gal.alignment import row_ids
from gal.errors import LearningInterruptedError
from gal.node.store.state import TaskRecord
from gal.node.web.endpoint import Endpoint
from gal.node.web.token import ensure_token
from patience import LONGEST
from small_network import ROW_ID, Network


def outputs(network: Network, record: TaskRecord, **how: Any) -> Any:
    """What is predicted of all rows of the clinic."""
    ids = row_ids(network.tables["clinic"][ROW_ID].to_numpy(), "clinic", "ids")
    fresh = network.nodes["clinic"].state.find_task(record.name)
    return network.holder.predictor.predict(fresh, ids, seconds=LONGEST, **how)


def predicted_online(network: Network, record: TaskRecord, n_rows: int) -> list[Any]:
    """What the endpoint says of the first rows."""
    asked = network.tables["clinic"][ROW_ID].tolist()[:n_rows]
    with Endpoint(network.holder, record.name, "127.0.0.1:0", LONGEST) as endpoint:
        request = urllib.request.Request(
            f"http://127.0.0.1:{endpoint.port}/predict",
            json.dumps({"ids": asked}).encode(),
            {"Authorization": f"Bearer {ensure_token(endpoint.token_file.parent)}"},
        )
        with urllib.request.urlopen(request, timeout=LONGEST) as answer:
            return [one["prediction"] for one in json.load(answer)["predictions"]]


def assert_a_restart_changes_nothing(network: Network, record: TaskRecord) -> None:
    """The label holder's node reads from its files what it has learned."""
    before = outputs(network, record).output
    network.stop("clinic")
    network.start("clinic")
    network.wait_until_joined(record)
    assert outputs(network, record).output.tobytes() == before.tobytes()


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
            network.learn(record.name, resume=True)
    return network.learn(record.name, resume=True)
