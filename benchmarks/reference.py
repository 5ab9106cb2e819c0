"""Against the authors' own code: is the preset faithful, and is the default better?

    GAL_REFERENCE=... python benchmarks/reference.py fidelity [--datasets Wine Iris] [--json]
    GAL_REFERENCE=... python benchmarks/reference.py defaults [--models SVR] [--json]

``fidelity``: GAL-Linear under ``preset="paper"`` on ``splits_paper``, against the one-split figures
of ``RESULTS.md``: the best round on the test rows (round 0 included, as they count it) and the
final one, mean and standard deviation over four seeds with their column partitions.

``defaults``: the default estimator with Ridge and with SVR locals on ``splits``, 8 organizations and
10 rounds: its *final* model against the authors' *best-on-test* of ``per_seed.csv``, mean over the
seeds at hand and over three random states.

Figures are mean absolute deviations (MAD, lower is better) or accuracies in percent.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.svm import SVR

from gal import GALClassifier, GALRegressor
from gal.models import PaperLinear
from gal_bench.data.splits import stored

Floats = NDArray[np.float64]
Say = Callable[[str], None]

REGRESSION = frozenset({"Diabetes", "BostonHousing"})
ORGANIZATIONS = 8
SEEDS = (0, 1, 2, 3)
RISE = 0.01
"""A round whose train loss rises by more than this fraction is listed, as RESULTS.md does."""

MODELS: dict[str, tuple[Any, str]] = {"Ridge": (Ridge(), "GAL-Linear"), "SVR": (SVR(), "GAL-SVM")}
"""Local models of ``defaults``, and the authors' method that each is measured against."""

RANDOM_STATES = (0, 1, 2)
"""Of the default estimator: it draws the parts of the cross-validation, and a single one can flatter."""


@dataclass(frozen=True)
class Figure:
    """A mean with its (population) standard deviation over seeds, as the tables print it."""

    mean: float
    std: float
    rounding: float = 0.0
    """Half a unit of the last printed decimal."""

    @classmethod
    def of(cls, scores: Sequence[float]) -> Figure:
        return cls(float(np.mean(scores)), float(np.std(scores)))

    @classmethod
    def parse(cls, text: str) -> Figure:
        """
        >>> Figure.parse("2.96(0.05)")
        Figure(mean=2.96, std=0.05, rounding=0.005)
        """
        found = re.fullmatch(r"(\d+(?:\.(\d+))?)\((\d+(?:\.\d+)?)\)", text)
        if found is None:
            raise ValueError(f"not a figure like 43.0(0.7): {text!r}")
        return cls(float(found[1]), float(found[3]), 0.5 * 10.0 ** -len(found[2] or ""))

    def __str__(self) -> str:
        return f"{self.mean:.2f}({self.std:.2f})"


@dataclass(frozen=True)
class Split:
    """Rows standardised with the authors' statistics, and the columns of each organization."""

    X_train: Floats
    y_train: NDArray[Any]
    X_test: Floats
    y_test: NDArray[Any]
    organizations: dict[str, list[int]]
    regression: bool

    def score(self, prediction: NDArray[Any]) -> float:
        """MAD, or accuracy in percent, on the test rows."""
        if self.regression:
            return float(np.abs(prediction - self.y_test).mean())
        return 100 * float((prediction == self.y_test).mean())

    @property
    def constant(self) -> NDArray[Any]:
        """The prediction of round 0: the mean, or the most frequent class."""
        if self.regression:
            return np.full(len(self.y_test), self.y_train.mean(dtype=np.float64))
        return np.full(len(self.y_test), np.bincount(self.y_train).argmax())


def read_split(folder: Path, dataset: str, organizations: int, seed: int) -> Split:
    """One file of ``splits`` or ``splits_paper``."""
    found = stored(folder, dataset, organizations, seed)
    return Split(
        X_train=np.ascontiguousarray(found.X_train),
        y_train=found.y_train,
        X_test=np.ascontiguousarray(found.X_test),
        y_test=found.y_test,
        # counted from 0: random numbers follow from names, and the figures in the docs from these
        organizations={
            f"organization {m}": [int(column.removeprefix("x")) for column in columns]
            for m, columns in enumerate(found.organizations.values())
        },
        regression=not found.classes,
    )


def tolerance(theirs: float, split: Split) -> float:
    """What no comparison should turn on: one test row of accuracy, 1 % of a MAD."""
    return 0.01 * theirs if split.regression else 100 / len(split.y_test)


def tables(text: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The heading and the rows (by column name) of every Markdown table."""
    heading = ""
    header: list[str] = []
    rows: list[dict[str, str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not header:
                header = cells
            elif set(cells[0]) - {"-"}:
                rows.append(dict(zip(header, cells, strict=False)))
            continue
        if rows:
            yield heading, rows
            header, rows = [], []
        if line.startswith("#"):
            heading = line.strip("# ")


def published(reference: Path, heading: str) -> list[dict[str, str]]:
    """The rows of the table under the heading that starts so."""
    text = (reference / "RESULTS.md").read_text(encoding="utf-8")
    return next(rows for found, rows in tables(text) if found.startswith(heading))


# --- is the preset faithful?


@dataclass(frozen=True)
class Cell:
    """One figure of theirs and ours of the same protocol."""

    dataset: str
    organizations: int
    figure: str
    ours: Figure
    theirs: Figure
    tolerance: float

    @property
    def difference(self) -> float:
        return abs(self.ours.mean - self.theirs.mean)

    @property
    def strict(self) -> bool:
        """Within one of their standard deviations, up to the rounding of what they print."""
        return self.difference <= self.theirs.std + self.theirs.rounding

    @property
    def tolerant(self) -> bool:
        """The same where their deviation is 0 or tiny: one test row, or 1 % of a MAD, is allowed."""
        return self.difference <= max(self.theirs.std, self.tolerance) + self.theirs.rounding


@dataclass(frozen=True)
class Rise:
    """A round after which the train loss was higher: the line search went astray."""

    dataset: str
    organizations: int
    seed: int
    round: int
    before: float
    after: float
    rate: float


@dataclass(frozen=True)
class Fidelity:
    """All cells, and the rounds in which the train loss rose: ours, and those that RESULTS.md lists.

    Which seeds go astray depends on the initial weights, which are drawn by another generator.
    """

    cells: list[Cell]
    rises: list[Rise]
    their_rises: list[str]

    @property
    def strict(self) -> int:
        return sum(cell.strict for cell in self.cells)

    @property
    def tolerant(self) -> int:
        return sum(cell.tolerant for cell in self.cells)


def fidelity(reference: Path, *, chosen: Callable[[str, int], bool], say: Say) -> Fidelity:
    """GAL-Linear under the preset, for the rows (data set, organizations) that are ``chosen``."""
    their_rises = [
        f"{row['dataset']}, M={row['M']}, seed {row['seed']}, round "
        f"{row['round: loss before -> after (eta)']}"
        for row in published(reference, "Rounds in which")
        if row["method"] == "GAL-Linear" and row["split"] == "one" and chosen(row["dataset"], int(row["M"]))
    ]
    cells, rises = [], []
    for row in published(reference, "The paper's own protocol"):
        dataset, organizations = row["dataset"], int(row["M"])
        if row["method"] != "GAL-Linear" or not chosen(dataset, organizations):
            continue
        best, final = [], []
        for seed in SEEDS:
            split = read_split(reference / "splits_paper", dataset, organizations, seed)
            scores, rounds = paper_run(split, seed)
            best.append(min(scores) if split.regression else max(scores))
            final.append(scores[-1])
            rises += [Rise(dataset, organizations, seed, *rise) for rise in rounds]
        for name, ours in {"best": best, "final": final}.items():
            theirs = Figure.parse(row[f"measured {name}"])
            cells.append(
                Cell(dataset, organizations, name, Figure.of(ours), theirs, tolerance(theirs.mean, split))
            )
        say(f"{dataset}, {organizations} organizations: best {cells[-2].ours}, final {cells[-1].ours}")
    return Fidelity(cells, rises, their_rises)


def paper_run(split: Split, seed: int) -> tuple[list[float], list[tuple[int, float, float, float]]]:
    """Scores on the test rows before the first round and after each; rises (round, from, to, rate)."""
    estimator = GALRegressor if split.regression else GALClassifier
    # The columns are standardised already, with the authors' statistics.
    local = PaperLinear(
        "l1" if split.regression else "l2", init_features=split.X_train.shape[1], standardize=False
    )
    model = estimator(split.organizations, local_models=local, preset="paper", random_state=seed)
    model.fit(split.X_train, split.y_train)
    scores = [split.score(prediction) for prediction in (split.constant, *model.staged_predict(split.X_test))]
    losses = [model.ensemble_.initial_train_loss, *(done.train_loss for done in model.rounds_)]
    rises = [
        (done.round, before, done.train_loss, done.rate)
        for before, done in zip(losses, model.rounds_, strict=False)
        if done.train_loss > (1 + RISE) * before
    ]
    return scores, rises


def fidelity_lines(found: Fidelity) -> Iterator[str]:
    """The report."""
    yield "| data set | M | figure | ours | theirs | one std | tolerant |"
    yield "|---|---|---|---|---|---|---|"
    for cell in found.cells:
        verdicts = " | ".join("yes" if agrees else "NO" for agrees in (cell.strict, cell.tolerant))
        yield (
            f"| {cell.dataset} | {cell.organizations} | {cell.figure} | {cell.ours} | {cell.theirs} | "
            f"{verdicts} |"
        )
    yield ""
    yield (
        f"within one of their standard deviations: {found.strict} of {len(found.cells)}; "
        f"or within one test row / 1 % of MAD: {found.tolerant} of {len(found.cells)}"
    )
    yield ""
    yield f"rounds in which the train loss rose by more than {RISE:.0%}, theirs:"
    yield from (f"- {rise}" for rise in found.their_rises)
    yield "ours:"
    for rise in found.rises:
        yield (
            f"- {rise.dataset}, M={rise.organizations}, seed {rise.seed}, round {rise.round}: "
            f"{rise.before:.3g}->{rise.after:.3g} ({rise.rate:.3g})"
        )


# --- is the default better?

VERDICTS = ("as good", "within their std", "worse")
"""Within the tolerance; short of it, but by no more than their standard deviation; neither."""


@dataclass(frozen=True)
class Comparison:
    """The default's final model against their best-on-test, mean over the seeds at hand."""

    model: str
    dataset: str
    loss: str
    ours: list[float]
    theirs: list[float]
    std: float
    """Theirs over four seeds, of RESULTS.md."""
    tolerance: float

    @property
    def difference(self) -> float:
        """How much better we are: positive whether lower or higher figures are better."""
        gain = float(np.mean(self.ours) - np.mean(self.theirs))
        return -gain if self.dataset in REGRESSION else gain

    @property
    def verdict(self) -> str:
        """One of ``VERDICTS``."""
        short = -self.difference - 1e-9  # a difference of just one test row is still one
        return VERDICTS[0 if short <= self.tolerance else 1 if short <= self.std else 2]


def defaults(
    reference: Path,
    *,
    models: Iterable[str] = tuple(MODELS),
    chosen: Callable[[str], bool] = lambda _: True,
    losses: Sequence[str] = ("auto", "absolute_error"),
    random_states: Sequence[int] = RANDOM_STATES,
    say: Say,
) -> list[Comparison]:
    """Every data set with every local model; regression once for each of ``losses``.

    The random state decides the parts of the cross-validation: the figures are means over them.
    """
    found = []
    for model in models:
        method = MODELS[model][1]
        for row in published(reference, f"M={ORGANIZATIONS}"):
            dataset = row["dataset"]
            if row["method"] != method or not chosen(dataset):
                continue
            std = Figure.parse(row["best round mean(std)"]).std
            for loss in losses if dataset in REGRESSION else losses[:1]:
                found.append(compare(reference, model, dataset, loss, std, random_states))
                say(f"{model}, {dataset}, loss {loss}: {found[-1].difference:+.2f} {found[-1].verdict}")
    return found


def compare(
    reference: Path, model: str, dataset: str, loss: str, std: float, random_states: Sequence[int]
) -> Comparison:
    """One data set, all seeds whose split and figure are at hand."""
    local, method = MODELS[model]
    theirs = best_on_test(reference, method, dataset)
    ours = []
    for seed in theirs:
        split = read_split(reference / "splits", dataset, ORGANIZATIONS, seed)
        estimator = GALRegressor if split.regression else GALClassifier
        models = [
            estimator(split.organizations, local_models=local, loss=loss, random_state=state)
            for state in random_states
        ]
        predictions = [one.fit(split.X_train, split.y_train).predict(split.X_test) for one in models]
        ours.append(float(np.mean([split.score(prediction) for prediction in predictions])))
    mean = float(np.mean(list(theirs.values())))
    return Comparison(model, dataset, loss, ours, list(theirs.values()), std, tolerance(mean, split))


def best_on_test(reference: Path, method: str, dataset: str) -> dict[int, float]:
    """The authors' figure by seed."""
    with (reference / "per_seed.csv").open(encoding="utf-8", newline="") as file:
        return {
            int(row["seed"]): float(row["best_on_test"])
            for row in csv.DictReader(file)
            if (row["dataset"], row["method"], int(row["organizations"])) == (dataset, method, ORGANIZATIONS)
        }


def defaults_lines(found: Sequence[Comparison]) -> Iterator[str]:
    """The report."""
    yield (
        "| local | data set | loss | ours, final | theirs, best on test | better by | tolerance | their "
        "std | verdict |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in found:
        yield (
            f"| {one.model} | {one.dataset} | {one.loss} | {np.mean(one.ours):.2f} | "
            f"{np.mean(one.theirs):.2f} "
            f"| {one.difference:+.2f} | {one.tolerance:.2f} | {one.std:.2f} | {one.verdict} |"
        )
    yield ""
    for model in dict.fromkeys(one.model for one in found):
        rows = [one for one in found if one.model == model and one.loss == "auto"]
        counts = {verdict: sum(one.verdict == verdict for one in rows) for verdict in VERDICTS}
        yield f"{model}, default loss, {len(rows)} sets: " + ", ".join(
            f"{count} {verdict}" for verdict, count in counts.items()
        )


# --- command line


def reference_folder() -> Path:
    """Where the measurements are."""
    folder = os.environ.get("GAL_REFERENCE")
    if not folder:
        raise SystemExit("GAL_REFERENCE is not set: it names the folder with RESULTS.md and the splits")
    return Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["fidelity", "defaults"])
    parser.add_argument("--datasets", nargs="+", help="only these data sets")
    parser.add_argument("--organizations", nargs="+", type=int, help="only these M (fidelity)")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), help="(defaults)")
    parser.add_argument(
        "--random-states", nargs="+", type=int, default=list(RANDOM_STATES), help="(defaults)"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    reference = reference_folder()

    def wanted(dataset: str, organizations: int | None = None) -> bool:
        return (arguments.datasets is None or dataset in arguments.datasets) and (
            None in (organizations, arguments.organizations) or organizations in arguments.organizations
        )

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if arguments.part == "fidelity":
        same = fidelity(reference, chosen=wanted, say=say)
        lines = fidelity_lines(same)
        figures: Any = asdict(same) | {"strict": same.strict, "tolerant": same.tolerant}
    else:
        better = defaults(
            reference,
            models=arguments.models,
            chosen=wanted,
            random_states=arguments.random_states,
            say=say,
        )
        lines = defaults_lines(better)
        figures = [asdict(one) | {"difference": one.difference, "verdict": one.verdict} for one in better]
    print(json.dumps(figures, indent=2) if arguments.json else "\n".join(lines))


if __name__ == "__main__":
    main()
