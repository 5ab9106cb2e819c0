"""Small tables: what one model of all columns reaches on the splits of ``many_splits.py``.

    python benchmarks/pooled_splits.py --beside docs/results/many-splits-more.csv

With Ridge it is a ridge regression or a logistic one whose penalty a cross-validation chooses, with SVR a
support vector machine. Nobody of a federation could have learned it. It says what is possible: where even it
is behind the authors' best round on the test rows, what is lacking is what choosing by these rows is worth.
Printed are its means on the splits of the file, our final model's and the authors' best round there, and how
much better it is than these, with the standard error of the paired difference.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from gal_bench.data.datasets import load
from gal_bench.data.splits import per_seed
from many_splits import Pair, difference, read, score

FILE = Path(__file__).parent.parent / "docs" / "results" / "many-splits.csv"
PENALTIES = np.logspace(-2, 3, 11)


def pooled_model(model: str, *, classes: bool) -> Any:
    """One model for everybody's columns."""
    if model == "SVR":
        return SVC() if classes else TransformedTargetRegressor(SVR(), transformer=StandardScaler())
    if not classes:
        return RidgeCV(PENALTIES)
    inverse = {"C": list(1 / PENALTIES)}
    return GridSearchCV(LogisticRegression(max_iter=2000), inverse, cv=4, scoring="neg_log_loss")


def pooled(model: str, name: str, seed: int) -> float:
    """What it reaches on the test rows of one split."""
    split = per_seed(load(name, None), 4 if name == "Iris" else 8, seed)
    learned = pooled_model(model, classes=split.classes).fit(split.X_train, split.y_train)
    return score(split, learned.predict(split.X_test))


def table(found: Sequence[Pair]) -> Iterator[str]:
    """One line per model and set, as Markdown."""
    yield (
        "| local | data set | splits | pooled | ours, final | theirs, best on test | pooled better than ours "
        "by | pooled better than their best by |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for model, name in sorted({(one.model, one.dataset) for one in found}):
        of = [one for one in found if (one.model, one.dataset, one.loss) == (model, name, "auto")]
        reached = [replace(one, ours=pooled(model, name, one.seed)) for one in of]
        means = [[one.ours for one in reached], [one.ours for one in of], [one.theirs for one in of]]
        changes = (
            difference([one.better(before.ours) for one, before in zip(reached, of, strict=True)]),
            difference([one.better(one.theirs) for one in reached]),
        )
        said = [f"{np.mean(one):.2f}" for one in means] + [f"{a:+.2f} ± {b:.2f}" for a, b in changes]
        yield f"| {model} | {name} | {len(of)} | {' | '.join(said)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", help="all that the file has, unless named")
    parser.add_argument("--beside", type=Path, default=FILE, help="a CSV file of many_splits.py")
    parser.add_argument("--splits", type=int, help="so many seeds of the file, unless all")
    given = parser.parse_args()
    found = [one for one in read(given.beside) if not given.sets or one.dataset in given.sets]
    seeds = sorted({one.seed for one in found})[: given.splits]
    for line in table([one for one in found if one.seed in seeds]):
        print(line, flush=True)


if __name__ == "__main__":
    main()
