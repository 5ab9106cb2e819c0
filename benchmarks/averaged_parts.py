"""Small tables: what the mean of the cross-validation's models would bring, beside today's final model.

    python benchmarks/averaged_parts.py QSAR BreastCancer --models SVR --splits 20

Splits and models are those of ``many_splits.py``, from seed 700 on, which chose nothing. A cross-validation
learns once more for each of its four parts without it; today these models judge, and are thrown away. Here
they are kept, and predict: as many rounds as are used, with the same trust, the mean of the four in link
space; and the mean of them and the final model. Printed are today's means, what each mean changes (positive
is better) with the standard error of the paired difference, and what prediction would ask for: numbers a row
of all assistants together, today and with the four parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

import gal
from gal import Organization
from gal.core.requests import FitRequest
from gal.core.state import Ensemble
from gal.core.task import Task
from gal.engine.drivers import InProcess, drive_learning
from gal.engine.labels import class_labels, regression_labels
from gal.engine.options import Options
from gal.engine.organization import Models
from gal.engine.task_making import make_task
from gal_bench.data.datasets import load
from gal_bench.data.splits import Split, per_seed
from many_splits import MODELS, SETS, difference, score, splits_parser

Floats = NDArray[np.float64]
FIRST = 700


class Keeping(Organization):
    """Keeps the models of the cross-validation as well."""

    def __init__(self, name: str, view: Any, model: Any) -> None:
        super().__init__(name, view, model)
        self.of_parts: dict[tuple[int, int], Models] = {}

    def keep(self, request: FitRequest, models: Models) -> None:
        """As always, and by part and round."""
        super().keep(request, models)
        if request.part is not None and request.track == "assisted":
            self.of_parts[request.part, request.round] = models

    def said(self, part: int, round: int, view: Any) -> Floats:
        """What the learning without this part fitted in a round says of rows."""
        said: Floats = np.mean([one.predict(view) for one in self.of_parts[part, round]], axis=0)
        return said


@dataclass(frozen=True)
class Averaged:
    """One split: today's final model, the mean of the parts, and the mean of both."""

    today: float
    parts: float
    both: float
    numbers: int
    """That prediction asks of all assistants, a row."""


def learned(split: Split, model: str, seed: int) -> tuple[Task, Ensemble, Mapping[str, Keeping]]:
    """As the default estimator learns it, with everything kept."""
    options = Options()
    members = {
        name: Keeping(name, split.X_train[columns], MODELS[model]())
        for name, columns in split.organizations.items()
    }
    labels = (class_labels if split.classes else regression_labels)(split.y_train, options)
    holder = next(iter(members))
    drawn = int(check_random_state(seed).randint(np.iinfo(np.int32).max))
    task = make_task(labels, list(members), options, label_holder=holder, seed=drawn)
    return task, drive_learning(replace(task, keep_fitted=True), members, InProcess()), members


def of_part(
    task: Task, ensemble: Ensemble, members: Mapping[str, Keeping], split: Split, part: int
) -> Floats:
    """The output of the learning without a part: as many rounds, and the same trust, as are used."""
    assert ensemble.judged is not None
    reached = ensemble.judged.reached[part]
    assert reached is not None
    first = replace(task, rows=task.rows.without(part)).first_output
    output = np.repeat(first, len(split.X_test), axis=0)
    for round, counts in enumerate(reached.coefficients[: ensemble.n_rounds], start=1):
        for name, count in counts.items():
            view = split.X_test[split.organizations[name]]
            output = output + ensemble.trust * count * members[name].said(part, round, view)
    return output


def averaged(name: str, model: str, seed: int) -> Averaged:
    """One split of a data set."""
    split = per_seed(load(name, None), 4 if name == "Iris" else 8, seed)
    task, ensemble, members = learned(split, model, seed)
    views = {one: split.X_test[columns] for one, columns in split.organizations.items()}
    final = gal.predict(ensemble, list(members.values()), views).output
    parts = [final]
    if ensemble.track == "assisted" and ensemble.n_rounds:
        parts = [of_part(task, ensemble, members, split, part) for part in range(task.rows.n_parts)]
    numbers = sum(len(set(counts) - {task.label_holder}) for counts in ensemble.coefficients)
    today, mean, both = (
        judged(split, one) for one in (final, np.mean(parts, axis=0), np.mean([final, *parts], axis=0))
    )
    return Averaged(today, mean, both, numbers * ensemble.n_outputs)


def judged(split: Split, output: Floats) -> float:
    """Of these outputs, the score of ``many_splits.py``."""
    if not split.classes:
        return score(split, output[:, 0])
    codes = output.argmax(axis=1) if output.shape[1] > 1 else output[:, 0] > 0
    return score(split, np.unique(split.y_train)[np.asarray(codes, dtype=np.intp)])


def main() -> None:
    """Print one line per set and model."""
    given = splits_parser(__doc__, FIRST).parse_args()
    print("| local | data set | splits | today | mean of the parts | of them and today's | numbers a row |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for model in given.models:
        for name in given.sets:
            found = [averaged(name, model, given.first + at) for at in range(given.splits)]
            better = -1 if name in SETS[:2] else 1
            changes = [
                difference([better * (value - one.today) for one, value in pairs])
                for pairs in ([(one, one.parts) for one in found], [(one, one.both) for one in found])
            ]
            said = " | ".join(f"{mean:+.2f} ± {error:.2f}" for mean, error in changes)
            today, numbers = (np.mean([getattr(one, key) for one in found]) for key in ("today", "numbers"))
            facts = f"{numbers:.0f} and {4 * numbers:.0f}"
            print(f"| {model} | {name} | {len(found)} | {today:.2f} | {said} | {facts} |", flush=True)


if __name__ == "__main__":
    main()
