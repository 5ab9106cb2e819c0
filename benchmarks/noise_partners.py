"""How often `gal simulate` claims a gain that is not there, and how often it sees one that is.

python benchmarks/noise_partners.py                     # noise: 10 tables of each size and kind
python benchmarks/noise_partners.py --partner 0.25      # one of its columns counts so much
python benchmarks/noise_partners.py --rows 200 --tables 100

Tables are made up. The label holder's columns carry nothing, lines, products or curves; the partner's
columns are numbers, heavy tails, codes or categories. With `--partner` its last column counts in the target.
Then all tables of a size and kind are drawn alike, and their intervals should hold the mean gain over them.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gal.evaluate import Simulation, Verdict, simulate

Floats = NDArray[np.float64]
KINDS = ("numbers", "classes")


def made_up(n: int, kind: str, seed: int, partner: float) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """A table with its target ``y``, and who holds which columns; with a real partner all are drawn alike."""
    rng = np.random.default_rng([seed, n])
    drawn = np.random.default_rng(0) if partner else rng
    width, others = int(drawn.integers(2, 8)), int(drawn.integers(2, 10))
    own, theirs = rng.normal(size=(n, width)), rng.normal(size=(n, others))
    if drawn.random() < 0.4:
        theirs[:, 0] = rng.integers(0, int(drawn.choice([2, 5, 30])), n)
    if drawn.random() < 0.3:
        theirs = np.sign(theirs) * np.abs(theirs) ** 3
    signals = (
        np.zeros(n),
        own[:, 0] - own[:, 1],
        own[:, 0] + own[:, 0] * own[:, 1],
        np.sin(2 * own[:, 0]) + own[:, 1] ** 2,
    )
    signal = signals[2 if partner else int(drawn.integers(0, 4))] * drawn.choice([0.3, 1.0])
    y = signal + partner * theirs[:, -1] / theirs[:, -1].std() + rng.normal(size=n)
    if kind == "classes":
        y = np.where(y > np.quantile(y, drawn.choice([0.5, 0.7, 0.9])), "yes", "no")
    names = {"mine": [f"a{j}" for j in range(width)], "noise": [f"b{j}" for j in range(others)]}
    table = pd.DataFrame(np.hstack([own, theirs]), columns=names["mine"] + names["noise"])
    if drawn.random() < 0.3:
        table["b0"] = np.array(list("uvwxyz"))[rng.integers(0, 6, n)]
    return table.assign(y=y), names


def of_partner(found: Simulation) -> bool:
    """Whether anything is claimed of any partner."""
    assert found.contributions is not None
    return any(one.low > 0 for one in found.contributions.by_organization.values())


def main() -> None:
    """Print a line for each size and kind, and all of them together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 1000, 5000])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--partner", type=float, default=0.0)
    parser.add_argument("--first", type=int, default=0, help="Seed of the first table.")
    given = parser.parse_args()
    everything: Counter[str] = Counter()
    for n in given.rows:
        for kind in given.kinds:
            verdicts: Counter[str] = Counter()
            gains, pooling, claimed, seconds = [], [], 0, time.process_time()
            for seed in range(given.first, given.first + given.tables):
                table, names = made_up(n, kind, seed, given.partner)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = simulate(table, "y", names, seed=seed)
                assert (found.covered is None) or found.verdict is Verdict.GAIN
                verdicts[found.verdict.value] += 1
                claimed += of_partner(found)
                gains.append(found.gain)
                pooling.append(found.pooling_gain)
            everything += verdicts
            spent = (time.process_time() - seconds) / given.tables
            print(
                f"{n:>6} {kind}: {dict(verdicts)}; a partner claimed {claimed}; gain {_held(gains)}; "
                f"pooling gain {_held(pooling)}; {spent:.1f} CPU s each",
                flush=True,
            )
    print(f"all {sum(everything.values())}: {dict(everything)}")


def _held(intervals: list[Any]) -> str:
    """The mean, and how many intervals hold it."""
    mean = float(np.mean([one.value for one in intervals]))
    held = sum(one.low <= mean <= one.high for one in intervals)
    return f"{mean:.4f}, in {held} of {len(intervals)} intervals"


if __name__ == "__main__":
    main()
