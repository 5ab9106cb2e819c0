"""Do contributions survive an invoice: what noise earns, how near estimates of coalitions come to the truth.

python benchmarks/contributions.py --rows 300 1000 4000 --seeds 5
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

from gal import GALClassifier
from gal.core.contributing.shares import Shares
from gal.engine.task_making import LARGE

PARTS = {"bank": ["a", "f"], "telecom": ["b"], "shop": ["c"], "chancer": ["d", "e", "text"]}
"""The chancer has two random columns, and a text that is another in every row."""


def table(n: int, seed: int) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """A table, and labels that are a sum, a ring, and a sum with a product across organizations."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, 6))
    frame = pd.DataFrame(A, columns=list("abcdef"))
    frame["text"] = [f"row {place}" for place in rng.permutation(n)]
    noise = rng.normal(size=n)
    return frame, {
        "sum": A[:, 0] + A[:, 1] + 0.5 * A[:, 2] + noise > 0,
        "ring": np.square(A[:, :3]).sum(axis=1) + 0.3 * noise > 2.4,
        "product": A[:, 0] * A[:, 1] + A[:, 0] + A[:, 1] + 0.5 * A[:, 2] + 0.3 * noise > 0,
    }


def shares_with(frame: pd.DataFrame, y: np.ndarray, names: tuple[str, ...], seed: int) -> Shares:
    """Who earned what when the bank learns with these."""
    parts = {name: PARTS[name] for name in ("bank", *names)}
    probed = len(frame) >= LARGE  # the figures were measured with interaction probes where there could be any
    shares = GALClassifier(parts, interactions=probed, random_state=seed).fit(frame, y).shares_
    assert shares is not None
    return shares


def main() -> None:
    """Print one line for each task and size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[300, 1000, 4000])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--relearn", action="store_true", help="compare estimates with the truth")
    given = parser.parse_args()
    others = tuple(name for name in PARTS if name != "bank")
    for n in given.rows:
        for task in table(50, 0)[1]:
            noise, covers, words, errors = [], 0, [], []
            for seed in range(given.seeds):
                frame, labels = table(n, seed)
                shares = shares_with(frame, labels[task], others, seed)
                one = shares.by_organization["chancer"]
                noise.append(one.value / shares.gain if shares.gain > 0 else 0.0)
                covers += one.low <= 0 <= one.high
                words.append(shares.verdicts()["chancer"])
                for some in shares.coalitions if given.relearn else ():
                    if not some.measured:
                        truth = shares_with(frame, labels[task], some.organizations, seed).gain
                        errors.append(abs(some.gain.value - truth))
            said = f"{n:6,} rows, {task:8} noise earns {np.mean(noise):6.1%} of the gain "
            said += f"(worst {max(noise, key=abs):6.1%})"
            said += (
                f", interval with 0 in {covers} of {given.seeds}, free rider in {words.count('free rider')}"
            )
            if errors:
                said += f"; estimates off by {np.mean(errors):.4f} on average, at most {max(errors):.4f}"
            print(said, flush=True)


if __name__ == "__main__":
    main()
