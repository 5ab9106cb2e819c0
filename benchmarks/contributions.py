"""Contributions: whether intervals of noise have 0 in them, and those of useful organizations have not.

python benchmarks/contributions.py --rows 300 1000 4000 --seeds 24

``--relearn``: how near contributions come to Shapley values of models that are learned with each coalition.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection

import numpy as np
import pandas as pd

from gal import GALClassifier
from gal.core.contributions import Contributions, coalitions_of

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


def learned_with(frame: pd.DataFrame, y: np.ndarray, names: Collection[str], seed: int) -> Contributions:
    """When the bank learns with these."""
    parts = {name: PARTS[name] for name in ("bank", *sorted(names))}
    found = GALClassifier(parts, random_state=seed).fit(frame, y).contributions_
    assert found is not None
    return found


def distance(found: Contributions, frame: pd.DataFrame, y: np.ndarray, seed: int) -> list[float]:
    """From the Shapley values of models that are learned with each coalition, by organization."""
    game = coalitions_of(sorted(found.by_organization), seed)
    gains = [learned_with(frame, y, some, seed).gain.value for some in game.members[:-1]]
    values = game.matrix @ np.array([*gains, found.gain.value])
    pairs = zip(game.players, values, strict=True)
    return [abs(found.by_organization[name].value - value) for name, value in pairs]


def main() -> None:
    """Print one line for each task and size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[300, 1000, 4000])
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--relearn", action="store_true", help="learn with each coalition, too")
    given = parser.parse_args()
    others = [name for name in PARTS if name != "bank"]
    for n in given.rows:
        for task in table(50, 0)[1]:
            noise, with_zero, above, off = [], 0, 0, []
            for seed in range(given.seeds):
                frame, labels = table(n, seed)
                found = learned_with(frame, labels[task], others, seed)
                one = found.by_organization["chancer"]
                noise.append(one.value / found.gain.value if found.gain.value > 0 else 0.0)
                with_zero += one.low <= 0 <= one.high
                above += sum(found.by_organization[name].low > 0 for name in ("telecom", "shop"))
                off += distance(found, frame, labels[task], seed) if given.relearn else []
            said = f"{n:6,} rows, {task:8} noise has {np.mean(noise):6.1%} of the gain, its interval 0 in "
            said += f"{with_zero} of {given.seeds}; useful ones lie above 0 in {above} of {2 * given.seeds}"
            if off:
                said += f"; from relearned {np.mean(off):.4f} on average, at most {max(off):.4f}"
            print(said, flush=True)


if __name__ == "__main__":
    main()
