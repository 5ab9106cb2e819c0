"""Why intermediate and late fusion on images are where they are: epochs, schedule, decay, patches or masks.

    PYTHONPATH=src python benchmarks/fusion.py --dataset MNIST --data-dir DATA      # minutes, on a GPU

For every combination of the options it trains the fused networks of the deep tables and looks at the test
rows after every epoch, which the tables never do: "last" is what a user gets and what our tables print,
"best" the highest of all epochs, which is what the paper prints. One JSON object per line. The authors train
for 100 epochs with a tenth of the rate after the first 50, on masked images:

    PYTHONPATH=src python benchmarks/fusion.py --views masked --schedules step --epochs 100 --data-dir DATA
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gal.evaluate.baselines.fusion import FusedNetworks
from gal.models.deep.training import Trainer, Training, on_stream
from gal_bench.data.images import load_images
from gal_bench.data.view_sets import ViewSet
from gal_bench.runs.deep_models import fusion_network, settings

STEP = 0.1
"""What becomes of the authors' learning rate after half of the epochs."""


class WatchedFusion(FusedNetworks):
    """Fused networks whose accuracy on other rows is noted after every epoch."""

    falls = False
    """Whether the constant learning rate falls once, halfway."""

    def watch(self, views: Mapping[str, Any], y: Any) -> None:
        """Look at these rows; to be called before ``fit``."""
        self.watched, self.accuracies = (views, np.asarray(y)), list[float]()

    def _fit(self, trainer: Trainer, start: Mapping[str, Tensor], target: Tensor) -> None:
        if self.falls:
            trainer.rates[len(trainer.rates) // 2 :] *= STEP
        trainer.begin(start, target, None, self.random_state)
        recorded = trainer.record() if trainer.stream is not None else None
        self.module_ = trainer.module
        for _ in range(trainer.training.epochs):
            trainer.module.train()
            self._epoch(trainer, recorded)
            trainer.module.eval()
            views, y = self.watched
            self.accuracies.append(float((self.predict(views).argmax(axis=1) == y).mean()))

    @staticmethod
    def _epoch(trainer: Trainer, recorded: Any) -> None:
        if recorded is None:
            for _ in range(trainer.steps):
                trainer.step()
            return
        with on_stream(trainer.stream):
            for _ in range(trainer.steps):
                recorded.replay()
        torch.cuda.synchronize()


def main() -> None:
    given = _parser().parse_args()
    for organizations, views in itertools.product(given.organizations, given.views):
        rows = load_images(given.dataset, organizations, given.data_dir, masked=views == "masked")
        for line in measure(rows, given):
            about = {"dataset": given.dataset, "organizations": organizations, "views": views}
            print(json.dumps(about | line), flush=True)


def measure(rows: ViewSet, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line for each way of training and seed."""
    choices = itertools.product(given.fuse, given.schedules, given.decays, given.epochs, given.seeds)
    for fuse, schedule, decay, epochs, seed in choices:
        kept = "constant" if schedule == "step" else schedule
        how = settings(given.dataset, paper=False) | {"schedule": kept, "weight_decay": decay}
        model = WatchedFusion(
            "features" if fuse == "intermediate" else "outputs",
            classes=True,
            network=fusion_network(given.network, given.dataset),
            training=Training(**how, epochs=epochs),
            random_state=seed,
        )
        model.falls = schedule == "step"
        model.watch(rows.test, rows.y_test)
        started = time.perf_counter()
        model.fit(rows.train, rows.y_train)
        seen = [100 * one for one in model.accuracies]
        yield {
            "fuse": fuse,
            "schedule": schedule,
            "decay": decay,
            "epochs": epochs,
            "seed": seed,
            "last": round(seen[-1], 2),
            "best": round(max(seen), 2),
            "best_epoch": int(np.argmax(seen)) + 1,
            "seconds": round(time.perf_counter() - started, 1),
        }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=["MNIST", "CIFAR10"], default="MNIST")
    parser.add_argument("--data-dir", type=Path, help="folder with the data sets; default: GAL_DATA")
    parser.add_argument("--organizations", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--network", choices=["Network", "Residual network"], default="Network")
    for name, default in (
        ("fuse", ["intermediate"]),
        ("views", ["patches", "masked"]),
        ("schedules", ["cosine", "constant"]),
    ):
        parser.add_argument(f"--{name}", nargs="+", default=default)
    parser.add_argument("--decays", type=float, nargs="+", default=[5e-4])
    parser.add_argument("--epochs", type=int, nargs="+", default=[40])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    return parser


if __name__ == "__main__":
    main()
