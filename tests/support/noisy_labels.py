"""Labels with noise over nodes: mechanisms, noise that can be foreseen, and what was sent and charged."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal.node.label_holder.labels.label_privacy import LabelPrivacy
from gal.node.store.stored_versions import LearnedVersion
from small_network import LABEL, ROW_ID, Network, numbers

N = 60
EPSILON = 1.0
SUBJECT = f"labels: {LABEL}"

RESPONSE = LabelPrivacy("randomised-response", EPSILON, classes=("no", "yes"))
LAPLACE = LabelPrivacy("laplace-labels", EPSILON, lower=-10.0, upper=10.0)
COLUMNS = LabelPrivacy(
    "randomised-response", EPSILON, classes=("no", "yes"), columns_epsilon=10.0, columns_delta=1e-6
)
MECHANISMS = {
    "randomised-response": RESPONSE,
    "laplace-labels": LAPLACE,
    "response and columns": COLUMNS,
}


class FixedNoise:
    """Looks secure, and gives the same noisy values whatever the labels are;
    counts the values that it gave.
    """

    secure = True

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.drawn: list[int] = []

    def randomised_response(self, codes: Any, n_classes: int, keep: float) -> Any:
        """Codes (n,) from nowhere."""
        self.drawn.append(len(codes))
        return self.rng.integers(0, n_classes, len(codes))

    def laplace(self, values: Any, scale: float) -> Any:
        """Numbers from nowhere, same shape."""
        self.drawn.append(len(values))
        return self.rng.normal(size=values.shape)

    gaussian = laplace


def labelled(classes: bool = True, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Tables of which the first has labels that follow from all columns; another ``seed``:
    other labels, all else the same.
    """
    tables = numbers(N, organizations=("clinic", "lab"))
    y = tables["clinic"][LABEL].to_numpy().copy()
    if seed:
        np.random.default_rng(seed).shuffle(y)
    tables["clinic"][LABEL] = np.where(y > 0, "yes", "no") if classes else y
    return tables


def spied(network: Network, patch: pytest.MonkeyPatch) -> list[tuple[str, str, bytes]]:
    sent: list[tuple[str, str, bytes]] = []
    assistants = network.nodes["clinic"].assistants
    post = assistants.post_together

    def note(requests: Any, *more: Any) -> Any:
        sent.extend((name, one.message.kind, bytes(one.data)) for name, one in requests.items())
        return post(requests, *more)

    patch.setattr(assistants, "post_together", note)
    return sent


def versions(network: Network, task: str) -> dict[int, LearnedVersion]:
    state = network.nodes["clinic"].state
    return state.learned_versions(state.find_task(task).id)


def audited(network: Network, kind: str) -> list[str]:
    return [one.note for one in network.nodes["clinic"].records.audit.entries() if one.kind == kind]


def charged(network: Network, task: str) -> list[Any]:
    return [one for one in network.nodes["clinic"].ledger.entries() if one.task == task]


def traffic(
    net: Network, sent: list[tuple[str, str, bytes]], task: str, privacy: LabelPrivacy, **options: Any
) -> list[tuple[str, str, bytes]]:
    """Everything that the lab receives in a task, from the invitation to a
    prediction, but for the task's own name.
    """
    del sent[:]
    record = net.invite(task, rounds=2, privacy=privacy, **options)
    net.learn(task)
    net.tables["clinic"][[ROW_ID]].to_csv(net.root / "all.csv", index=False)
    net.holder.predictor._numbers = count(1)
    net.holder.predict_file(task, net.root / "all.csv")
    named = record.id.encode(), record.terms.digest.encode()
    told = {
        key: value
        for key, value in record.terms.model_dump(mode="json").items()
        if key not in {"task", "name"}
    }
    received = [
        (name, kind, data.replace(named[0], b"T" * 32).replace(named[1], b"D" * len(named[1])))
        for name, kind, data in sent
    ]
    return [*received, ("lab", "terms", repr(told).encode())]
