"""Do the guarantees hold against the attacks of the leak meter, and what do messages tell of columns?

    GAL_DATA=... python benchmarks/privacy.py [canaries | columns | noise] [--seeds 20] [--sets Wine ...]
    [--json]

*canaries*: on BreastCancer, Wine and digits a fifth of the training labels is drawn by chance; every attack
of the meter guesses them from what was sent, without protection and under randomized response at epsilon 0.5,
1, 2 and 4. No attack may be right more often than e^eps / (e^eps + K - 1) beyond its interval of 95 %;
without protection the first residual must tell all of them. Of so many intervals a few miss by chance, so
those of 95 % for all comparisons of a set together (Bonferroni) stand beside them. Eight organizations, ridge
regressions as local models, ten rounds; rows and columns drawn by seed.

*columns*: R2 with which columns are rebuilt from residuals, by an organization, and from fitted values, by
the label holder, where 50 rows are known; on Diabetes or other numbers (--sets), by local model, rounds and
mechanism, without a cross-validation and with one. Beside each, in brackets, what the attacker's own columns
tell without any message.

*noise*: noise on secure aggregation. Three and eight organizations with one two-valued column each, linear
models and boosting, six rounds with the default cross-validation; by noise multiplier, epsilon of all sums
about a row, R2 on the training rows, and the adjusted Rand index of the columns that independent component
analysis reads from the sums. Means over five tables.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.datasets import load_digits, make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from gal import GALRegressor, Organization, Validation, learn, predict
from gal.evaluate.rehearsal import canary_leak
from gal.privacy import LaplaceLabels, RandomisedResponse, SeededNoise
from gal.privacy.accounting import Event, spent
from gal.privacy.leakage import (
    LeakReport,
    Transcript,
    added_reports,
    columns_from_replies,
    columns_from_residuals,
)
from gal.privacy.leakage.reconstruction import numbers_of
from gal.secure_aggregation import Sums
from gal_bench.data.datasets import DATASETS, Dataset, load
from gal_bench.data.splits import per_seed

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))
from few_values import columns_read
from low_bits import sums_of

MODELS: dict[str, Any] = {
    "default": None,
    "ridge": Ridge(),
    "boosting": HistGradientBoostingRegressor(max_iter=20),
}
EPSILONS = (0.5, 1.0, 2.0, 4.0)
KNOWN = 50
ROUNDS = 10


def find(name: str) -> Dataset:
    """A set by name; digits comes with scikit-learn, friedman (not linear) is made up."""
    if name == "friedman":
        X, y = make_friedman1(800, 10, noise=1.0, random_state=0)
        return Dataset(name, pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]), y, False)
    if name != "digits":
        return load(name)
    bunch = load_digits(as_frame=True)
    return Dataset("digits", bunch.data, bunch.target.to_numpy().astype(np.int64), True)


def bounds_of(data: Dataset) -> tuple[float, float]:
    """Of numbers: taken for public here."""
    return float(data.y.min()), float(data.y.max())


# --- canaries

ATTACKED = ("BreastCancer", "Wine", "digits")


def leak(data: Dataset, privacy: Any, seed: int) -> LeakReport:
    """Attack one fit with canaries."""
    split = per_seed(data, 8, seed)
    return canary_leak(
        split.X_train,
        split.y_train,
        split.organizations,
        privacy=privacy,
        classes=np.unique(data.y).tolist(),
        bounds=bounds_of(data),
        canaries=0.2,
        features=False,
        seed=seed,
        rounds=ROUNDS,
        local_models=Ridge(),
    )


def measure_canaries(name: str, seeds: Sequence[int], run: Parallel) -> list[dict[str, Any]]:
    """Every attack on one set, without protection and at every epsilon."""
    data = find(name)
    classes = np.unique(data.y).tolist()
    facts = []
    for epsilon in (None, *EPSILONS):
        jobs = []
        for seed in seeds:
            source = SeededNoise([seed, 5, round(10 * (epsilon or 0))])
            privacy = None if epsilon is None else RandomisedResponse(epsilon, classes, source)
            jobs.append(delayed(leak)(data, privacy, seed))
        report = added_reports(run(jobs))
        together = 1 - 0.05 / (len(report.attacks) * len(EPSILONS))
        facts.append(
            {"set": name, "epsilon": epsilon}
            | report.to_json()
            | {"exceeding_together": [one.name for one in report.exceeding(together)]}
        )
    return facts


def print_canaries(facts: Sequence[dict[str, Any]]) -> None:
    """One table for a set: attacks by epsilon."""
    first = facts[0]
    heads = ["no protection" if one["epsilon"] is None else f"epsilon {one['epsilon']:g}" for one in facts]
    canaries = first["attacks"][0]["canaries"]["of"]
    print(
        f"\n{first['set']}: {canaries} canaries over {first['runs']} seeds, blind guess {first['chance']:.1%}"
    )
    print(f"{'attack':28}" + "".join(f"{head:>24}" for head in heads))
    for place, attack in enumerate(first["attacks"]):
        cells = [_share(one["attacks"][place]["canaries"]) for one in facts]
        print(f"{attack['name']:28}" + "".join(f"{cell:>24}" for cell in cells))
    print(f"{'allowed':28}" + "".join(f"{_bound(one):>24}" for one in facts))
    for label, key in (
        ("exceeding (95 % each)", "exceeding"),
        ("exceeding (95 % together)", "exceeding_together"),
    ):
        print(f"{label:28}" + "".join(f"{', '.join(one[key]) or 'none':>24}" for one in facts))
    print(first["verdict"], flush=True)


def _share(share: dict[str, Any]) -> str:
    return f"{100 * share['share']:.1f} ({100 * share['low']:.1f} to {100 * share['high']:.1f})"


def _bound(facts: dict[str, Any]) -> str:
    return "-" if facts["bound"] is None else f"{100 * facts['bound']:.1f}"


def measure_all_canaries(chosen: argparse.Namespace, run: Parallel) -> None:
    """One table for each set."""
    found = []
    for name in chosen.sets or ATTACKED:
        facts = measure_canaries(name, range(chosen.seeds), run)
        found += facts
        if not chosen.json:
            print_canaries(facts)
    if chosen.json:
        print(json.dumps(found, indent=2))


# --- columns


def columns(
    name: str, model: str, rounds: int, three: bool, noise: str, n_cv_folds: int, rows: int, seed: int = 0
) -> list[list[tuple[float, float]]]:
    """R2 of every column, with messages and without: of the label holder's and of a third party's from
    residuals, of the others' from fitted values; cross-validated in so many folds (0: not at all).
    """
    data = find(name)
    if len(data.y) > rows:
        drawn = np.random.default_rng([seed, 12]).permutation(len(data.y))[:rows]
        data = replace(data, X=data.X.iloc[drawn].reset_index(drop=True), y=data.y[drawn])
    names, (lower, upper) = list(data.X.columns), bounds_of(data)
    half, first, second = len(names) // 2, len(names) - 2 * (len(names) // 3), len(names) - len(names) // 3
    halves = {"clinic": names[:half], "lab": names[half:]}
    parts = {"clinic": names[:first], "lab": names[first:second], "shop": names[second:]} if three else halves
    mechanisms = {
        "none": None,
        "labels 0.1": LaplaceLabels(0.1, lower, upper, SeededNoise(seed)),
        "columns 10": LaplaceLabels(
            0.1, lower, upper, SeededNoise(seed), columns_epsilon=10.0, columns_delta=1e-6
        ),
    }
    transcript = Transcript()
    options: dict[str, Any] = {"local_models": MODELS[model], "random_state": seed}
    options |= {"privacy": mechanisms[noise], "validation": Validation(folds=n_cv_folds, patience=None)}
    made = GALRegressor(parts, rounds=rounds, **options).fit(data.X, data.y, on_message=transcript)
    sent = transcript.sent(made.task_rows_, "clinic")
    rng = np.random.default_rng(seed)
    known = np.zeros(len(sent.rows), dtype=np.bool_)
    known[rng.choice(len(known), KNOWN, replace=False)] = True
    views = {name: data.X[own].iloc[sent.rows] for name, own in parts.items()}
    targets = {name: view for name, view in views.items() if name != "lab"}
    own = numbers_of(views["lab"])
    read = columns_from_residuals(sent.residual, own, targets, known, rng, by="lab")
    others = {name: view for name, view in views.items() if name != "clinic"}
    held = np.hstack([numbers_of(views["clinic"]), data.y[sent.rows, None]])
    answered = columns_from_replies(sent.replies, others, held, known, rng, more=sent.more_replies)
    of = [[one for one in read if one.organization == name] for name in ("clinic", "shop")]
    return [[(one.with_messages.value, one.without.value) for one in found] for found in (*of, answered)]


def measure_columns(chosen: argparse.Namespace, run: Parallel) -> None:
    """Mean R2 of the columns, by local model, rounds, organizations and noise."""
    every: list[tuple[int, bool, str, int]] = [
        (10, False, "none", 0),
        (50, False, "none", 0),
        (20, True, "none", 0),
        (10, False, "labels 0.1", 0),
        (3, False, "labels 0.1", 0),
        (3, False, "labels 0.1", 4),
        (10, False, "labels 0.1", 4),
        (10, True, "labels 0.1", 4),
        (10, False, "columns 10", 4),
    ]
    taken = [one for one in every if not chosen.cross_validated or one[3] or one[0] == 3]
    cases = [(model, *one) for model in chosen.models for one in taken]
    print(f"{KNOWN} known rows: mean R2 of the label holder's and a third party's columns from residuals,")
    print("of the others' from answers; in brackets without messages")
    seed = chosen.first_seed
    for name in chosen.sets or ("Diabetes",):
        for (
            model,
            rounds,
            three,
            noise,
            n_cv_folds,
        ) in cases:  # one at a time: a line is there when it is found
            how = (model, rounds, three, noise, n_cv_folds, chosen.rows, seed)
            [found] = run([delayed(columns)(name, *how)])
            cells = [
                f"{'-':11}" if not one else "{:.2f} ({:.2f})".format(*np.maximum(0, one).mean(axis=0))
                for one in found
            ]
            who = "three" if three else "two"
            print(
                f"{find(name).name} {model:9} {rounds:3} rounds, {who:5} organizations, {n_cv_folds} folds, "
                f"noise {noise:12}" + "  ".join(cells),
                flush=True,
            )


# --- noise on sums

MULTIPLIERS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 2.0)
NOISE_ROWS, NOISE_SEEDS = 800, 5


def noisy_sums(members: int, model: Any, multiplier: float, seed: int) -> tuple[float, float, float]:
    """Sums about a row, R2 on training rows, and the mean adjusted Rand index of the columns."""
    rng = np.random.default_rng([seed, members])
    columns = [rng.integers(0, 2, NOISE_ROWS) for _ in range(members)]
    own = rng.normal(size=(NOISE_ROWS, 1))
    y = own[:, 0] + sum((one - 0.5) * (0.5 + 0.15 * m) for m, one in enumerate(columns))
    y = y + 0.3 * rng.normal(size=NOISE_ROWS)
    made = [Organization("bank", own, model)]
    made += [Organization(f"m{m}", one[:, None].astype(float), model) for m, one in enumerate(columns)]
    with sums_of() as opened:
        ensemble = learn(y, made, secure_aggregation=Sums(noise_multiplier=multiplier), rounds=6, seed=seed)
    output = predict(ensemble, made).output[:, 0]
    score = 1 - np.mean((y - output) ** 2) / np.var(y)
    return len(opened), float(score), float(np.mean(columns_read(opened, columns)))


def measure_noise(_: argparse.Namespace, run: Parallel) -> None:
    """A line for each local model, number of organizations and multiplier."""
    print("| local models | organizations | noise multiplier | ε, δ = 1e-6 | R² | adjusted Rand index |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in ("ridge", "boosting"):
        for members in (3, 8):
            for multiplier in MULTIPLIERS:
                jobs = [
                    delayed(noisy_sums)(members, MODELS[name], multiplier, seed)
                    for seed in range(NOISE_SEEDS)
                ]
                sums, score, index = np.mean(run(jobs), axis=0)
                events = [Event("discrete-gaussian", multiplier, round(sums))] if multiplier else []
                epsilon = f"{spent(events, 1e-6):,.3g}" if events else "none"
                cells = f"{name} | {members} | {multiplier:g} | {epsilon} | {score:.2f} | {index:.2f}"
                print(f"| {cells} |", flush=True)


PARTS = {"canaries": measure_all_canaries, "columns": measure_columns, "noise": measure_noise}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=PARTS, default="canaries")
    parser.add_argument("--seeds", type=int, default=20, help="of canaries")
    parser.add_argument("--sets", nargs="+", choices=[*DATASETS, "digits", "friedman"], metavar="SET")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS], help="of columns")
    parser.add_argument("--rows", type=int, default=10**9, help="at most, of columns")
    parser.add_argument("--first-seed", type=int, default=0, help="of columns: others draw other splits")
    parser.add_argument(
        "--cross-validated", action="store_true", help="of columns: only few rounds, and those with folds"
    )
    parser.add_argument("--json", action="store_true", help="of canaries")
    chosen = parser.parse_args()
    with Parallel(n_jobs=chosen.jobs) as run:
        PARTS[chosen.part](chosen, run)


if __name__ == "__main__":
    main()
