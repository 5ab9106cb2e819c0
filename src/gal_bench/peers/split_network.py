"""SplitNN: a network whose lower parts lie with the organizations; it exchanges activations and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from gal_bench.peers.encoding import codes_of, judges
from gal_bench.peers.methods import Said
from gal_bench.peers.tables import PeerTable

WIDTH, EMBEDDING = 64, 32
BATCH, EPOCHS, PATIENCE = 256, 60, 5
RATE = 1e-3


def splitnn(table: PeerTable, seed: int) -> Said:
    """One hidden layer below and one above the cut; Adam, stopped on a tenth of the rows."""
    import torch

    torch.manual_seed(seed)
    views = [codes_of(table, columns) for columns in table.organizations.values()]
    train = [torch.tensor(one.encoder.wide(one.train), dtype=torch.float32) for one in views]
    test = [torch.tensor(one.encoder.wide(one.test), dtype=torch.float32) for one in views]
    y, (fit, stop) = torch.tensor(table.y), map(torch.tensor, judges(table.y, seed))
    below = [_layers(torch, one.shape[1], EMBEDDING) for one in train]
    above = _layers(torch, len(below) * EMBEDDING, table.n_classes)
    parameters = [p for part in [*below, above] for p in part.parameters()]
    optimizer, loss = torch.optim.Adam(parameters, lr=RATE), torch.nn.CrossEntropyLoss()

    def output(rows: Any) -> Any:
        return above(torch.cat([part(view) for part, view in zip(below, rows, strict=True)], dim=1))

    best, since, said, sent = float("inf"), 0, None, 0
    for _ in range(EPOCHS):
        for batch in fit[torch.randperm(len(fit))].split(BATCH):
            optimizer.zero_grad()
            loss(output([one[batch] for one in train]), y[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            judged = float(loss(output([one[stop] for one in train]), y[stop]))
            sent += (len(below) - 1) * 4 * EMBEDDING * (2 * len(fit) + len(stop))
            since = 0 if judged < best else since + 1
            if judged < best:
                best, said = judged, torch.softmax(output(test), dim=1).numpy()
        if since >= PATIENCE:
            break
    return np.asarray(said, dtype=np.float64), sent


def _layers(torch: Any, taken: int, given: int) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(taken, WIDTH), nn.ReLU(), nn.Linear(WIDTH, given))
