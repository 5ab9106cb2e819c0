"""ModelNet40 on a CPU: twelve cameras with a network a sixteenth the size of the paper's.

    GAL_DATA=DATA python benchmarks/camera_views.py          # about twenty minutes on one core

The table `gal bench cases` has the paper's network, which wants a GPU. This shows the same way from
point clouds to predictions on all 9,843 and 2,468 objects, with five rounds of four epochs, for
camera 1 alone and with all twelve.
"""

from __future__ import annotations

import time
from typing import Any

from gal import Organization, learn, predict
from gal.models.deep import Inputs, TorchModel, cnn_body
from gal.models.deep.networks import WithHead
from gal_bench.data.shapes import load_shapes
from gal_bench.data.view_sets import ViewSet

WIDTHS = (16, 32, 64, 128)


def main() -> None:
    views = load_shapes("ModelNet40")
    for cameras in (1, len(views.train)):
        started = time.perf_counter()
        accuracy, rounds = run(views, list(views.train)[:cameras])
        seconds = time.perf_counter() - started
        print(
            f"{cameras:2d} cameras: {accuracy:.1%} of the test objects, {rounds} rounds, {seconds:.0f} s",
            flush=True,
        )


def run(views: ViewSet, cameras: list[str]) -> tuple[float, int]:
    """Accuracy on the test objects, and how many rounds the final model has."""
    model = TorchModel(small, epochs=4, batch_size=128, weight_decay=5e-3)
    organizations = [Organization(name, views.train[name], model) for name in cameras]
    ensemble = learn(views.y_train, organizations, kind="classification", rounds=5, seed=0)
    output = predict(ensemble, organizations, {name: views.test[name] for name in cameras}).output
    return float((output.argmax(axis=1) == views.y_test).mean()), ensemble.n_rounds


def small(inputs: Inputs, n_outputs: int) -> Any:
    """The paper's layers with a quarter of the channels."""
    return WithHead(cnn_body(inputs, widths=WIDTHS), WIDTHS[-1], n_outputs)


if __name__ == "__main__":
    main()
