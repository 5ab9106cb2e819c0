"""Below 2,000 rows: what it would cost, and bring, to keep a tenth of the rows from everybody as judges.

    OMP_NUM_THREADS=1 python benchmarks/small_judges.py --data DATA

The default there is a cross-validation, in which every row is sent in some part: who remembers residuals
looks perfect. Beside it: the same learning on nine tenths of the rows, after which the label holder stays
alone where her own model is better on the others; and the validation rows that can be asked for today.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from gal.engine.labels import read_labels
from gal.engine.options import Options
from gal.engine.organization import Organization
from gal.engine.task_making import make_task
from gal_bench.adversaries.attacked_tasks import DEFAULT, MODELS, ROUNDS, VALIDATED, Trial, drive, forecast
from gal_bench.adversaries.hostile_answers import ATTACKS, Member
from gal_bench.adversaries.running import drawn

SETS = ("Diabetes", "BostonHousing", "BreastCancer", "QSAR")
HOSTILE = ("memorised", "honest first")
SHARE = 0.1
JUDGED = "a tenth judges"


class Judged:
    """Learnings on nine tenths of the rows of a split; the last tenth is never sent."""

    def __init__(self, trial: Trial) -> None:
        n = len(trial.split.y_train)
        order = np.random.default_rng([trial.seed, 7]).permutation(n)
        self._trial, self._judges, self._rows = trial, order[: round(SHARE * n)], order[round(SHARE * n) :]
        self.alone_judged, self.alone = self._learned(trial.names[:1], None)

    def score(self, attack: str | None) -> float:
        """Of test rows, with whichever of the two is better on the judges."""
        judged, tested = self._learned(self._trial.names, attack)
        return self.alone if judged > self.alone_judged else tested

    def _learned(self, names: list[str], attack: str | None) -> tuple[float, float]:
        """The loss of the judges, and the score of the test rows."""
        trial, hostile = self._trial, {}
        if attack is not None:
            made = ATTACKS[attack](np.random.default_rng(trial.seed))
            hostile = dict(zip(reversed(names), made, strict=False))
        views = {name: trial.train[name][self._rows] for name in names}
        views |= {name: one.columns(views[name]) for name, one in hostile.items()}
        model = MODELS[trial.model]
        members = {
            name: Member(Organization(name, views[name], model()), hostile.get(name)) for name in names
        }
        options, y = Options(rounds=ROUNDS), trial.split.y_train
        kind: Any = "classification" if trial.split.classes else "regression"
        labels = read_labels(y[self._rows], kind, options)
        ensemble = drive(make_task(labels, names, options, label_holder=names[0], seed=trial.seed), members)
        judges = {name: view[self._judges] for name, view in trial.train.items()}
        said = forecast(ensemble, members, judges, "missing")
        known = read_labels(y, kind, options).y[self._judges]
        loss = float(labels.loss.value(known, said).mean())
        return loss, trial._quality(labels, forecast(ensemble, members, trial.test, "missing"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(100, 112)))
    given = parser.parse_args()
    for model in MODELS:
        for name in given.sets:
            found: dict[tuple[str, str], list[float]] = defaultdict(list)
            for seed in given.seeds:
                trial = Trial(drawn(name, seed, given.data), model, seed)
                judged = Judged(trial)
                found[JUDGED, "alone"].append(judged.alone)
                for attack in (None, *HOSTILE):
                    found[JUDGED, str(attack)].append(judged.score(attack))
                for said, how in (("default", DEFAULT), ("validation rows", VALIDATED)):
                    found[said, "alone"].append(trial.alone(how).clean)
                    found[said, "None"].append(trial.without(0, how).clean)
                    for attack in HOSTILE:
                        found[said, attack].append(trial.attacked(attack, how).clean)
            classes = drawn(name, given.seeds[0], given.data).classes
            _print(model, name, found, scale=100.0 if classes else 1.0)


def _print(model: str, name: str, found: dict[tuple[str, str], list[float]], scale: float) -> None:
    """One line for each way to learn; the price is that of nobody hostile, beside the default."""
    usual = np.array(found["default", "None"])
    for said in ("default", JUDGED, "validation rows"):
        worse = (np.array(found[said, "None"]) - usual) * (-100.0 if scale > 1 else 100.0 / usual.mean())
        error = worse.std(ddof=1) / np.sqrt(len(worse))
        cells = [f"{scale * np.mean(found[said, one]):.3g}" for one in ("alone", "None", *HOSTILE)]
        line = [f"{name}, {model}", said, *cells, f"{worse.mean():.1f} ({error:.1f})"]
        print(f"| {' | '.join(line)} |", flush=True)


if __name__ == "__main__":
    main()
