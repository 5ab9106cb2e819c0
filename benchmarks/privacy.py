"""Do the guarantees hold against the attacks of the leak meter, and what do they
cost beside the paper's mechanism?

    GAL_DATA=... python benchmarks/privacy.py [canaries | paper | stack | alone | columns | answers | curve
    | sums | meter] [--seeds 20]
    [--sets Wine ...] [--quick] [--json] [--model default] [--rows 3000]

*canaries*: on BreastCancer, Wine and digits a fifth of the training labels is drawn by chance; every attack
of the meter guesses them from what was sent, without protection and under randomised response at epsilon 0.5,
1, 2 and 4. No attack may be right more often than e^eps / (e^eps + K - 1) beyond its interval of 95 %;
without protection the first residual must tell all of them. Of so many intervals a few miss by chance, so
those of 95 % for all comparisons of a set together (Bonferroni) stand beside them.

*paper*: on the seven small sets of the paper's tables, how often the strongest attack guesses a canary under
the paper's Laplace mechanism (alpha = 1) gives the epsilon at which our mechanism leaks as much: randomised
response for classes, Laplace noise on labels for numbers (bounds: smallest and largest label; canaries lie at
these). Then both are scored on rows that nobody learned from: accuracy, or mean absolute deviation. Twice: at
the leakage measured, and at the lower end of its interval, where ours gets less than it may. The paper's
mechanism sends ten residuals about each row: our default for small tables, a cross-validation, would send
four times as many, and leak more.

Eight organizations (four for Iris), ridge regressions as local models, ten rounds;
rows and columns drawn by seed.

*stack*: two organizations, the local model named by --model: log loss on rows that nobody learned from, of
the label holder alone, with assistance, and under randomised response at epsilon 0.5, 1 and 2; the private
stack, and the refit of in-sample values that came before it (fitted="in-sample").

*alone*: is the private stack ever worse than alone? On many random splits of several tables, two
organizations, by --model: what was lost on rows that nobody learned from, alone minus stack, paired, with its
standard error; and the same for alone with another seed, which says what chance does. Log loss for classes;
for numbers the share of the variance that is not explained.

*columns*: R2 with which columns are rebuilt from residuals, by an organization, and from answers, by the
label holder, where 50 rows are known; on Diabetes or other numbers (--sets), by local model, rounds and
mechanism. Beside each, in brackets, what the attacker's own columns tell without any message.

*curve*: what fresh noise on every residual, on top of noisy labels at epsilon 1 (classes: 4, where the attack
finds something without it), costs in accuracy, and what it leaves of the columns: R2 of the label holder's,
by an organization with 50 known rows, beside what that one knows anyway. By local model and epsilon for
columns (delta 1e-6), on Diabetes as numbers and as classes.

*answers*: the same from answers to residuals that the label holder has chosen to find them, as `gal join`
tries it; median and best of six columns.

*sums*: the same from the sum of the answers of several organizations (``secrecy="sums"``), of Diabetes' ten
columns, drawn by seed: four of one organization, beside two with three each; and beside seven that hold the
same four in chance order. Means over --seeds of the median column and of the best.

*meter*: the whole leak meter (``gal leakage``) on any tables (--sets), --rows of them at most: three
organizations, ten rounds, without a mechanism and with noisy labels at epsilon 1. How often the strongest
attack guesses a canary, and what is allowed; mean R2 of the label holder's columns from residuals, of third
parties' from the same, of the others' from answers, each with what the attacker has anyway in brackets; from
predictions, how well rows that were learned from are told from others (AUC) and R2 of the column that they
tell most of; and how many signs crossed residuals told, with R2 of the column that these tell most of.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.datasets import load_digits, make_classification, make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss, r2_score

from gal import GALClassifier, GALRegressor
from gal.core.losses import AbsoluteError, BinaryLogLoss, SquaredError
from gal.engine.organization import Organization
from gal.errors import MissingDataError
from gal.evaluate.rehearsal import Rehearsal, canary_leak, rehearse_all
from gal.models.registry import make_model
from gal.privacy import GaussianResiduals, LaplaceLabels, PaperLaplace, RandomisedResponse, SeededNoise
from gal.privacy.accounting.costs import LARGEST_EPSILON
from gal.privacy.leakage import (
    LeakReport,
    Reconstruction,
    Share,
    Transcript,
    added_reports,
    columns_from_answers,
    columns_from_residuals,
    equivalent_epsilon,
)
from gal.privacy.leakage.own_columns import own_columns_explained, pretended
from gal.privacy.leakage.reconstruction import numbers_of
from gal_bench.data.datasets import DATASETS, Dataset, load
from gal_bench.data.splits import Split, per_seed

JUDGED = ("BreastCancer", "Wine", "digits")
PAPER_SETS = ("Diabetes", "BostonHousing", "Blob", "Iris", "Wine", "BreastCancer", "QSAR")
STACKED = ("QSAR", "CreditDefault", "Adult")
PARTS = ("canaries", "paper")
LATER = ("stack", "alone", "columns", "answers", "curve", "sums", "meter")
METERED = ("digits", "Wine", "Adult", "CreditDefault", "Covertype", "houses")
MODELS: dict[str, Any] = {
    "default": None,
    "ridge": Ridge(),
    "boosting": HistGradientBoostingRegressor(max_iter=20),
}
EPSILONS = (0.5, 1.0, 2.0, 4.0)
KNOWN = 50
MANY, FEW = 0.2, 0.1
"""Of training rows that are canaries: for the guarantee, which does not depend on it; and beside the paper's
mechanism, whose leakage does (chance labels make residuals larger)."""
ROUNDS = 10


MADE_UP = ("friedman", "needles", "five classes", "chance", "houses")
"""Tables on which nothing here was chosen: curved numbers, two columns of twelve that count, five classes,
labels that no column tells anything of, and prices of houses, with skewed columns that hang together.
"""


def made_up_houses() -> Dataset:
    """3,000 districts, somewhat like California's: incomes, ages, rooms, people, and where they are."""
    rng = np.random.default_rng(6)
    n = 3000
    east, north, wealth = rng.normal(size=n), rng.normal(size=n), rng.normal(size=n)
    age = rng.integers(1, 53, n).astype(np.float64)
    people = np.exp(7 + 0.7 * rng.normal(size=n))
    rooms = np.exp(1.6 + 0.25 * wealth + 0.15 * rng.normal(size=n))
    frame = pd.DataFrame(
        {
            "income": np.exp(1.2 + 0.45 * wealth),
            "age": age,
            "rooms": rooms,
            "bedrooms": 0.2 * rooms * np.exp(0.1 * rng.normal(size=n)),
            "people": people,
            "per_household": np.exp(1 + 0.2 * rng.normal(size=n) - 0.1 * wealth),
            "latitude": 36 + 2 * north,
            "longitude": -119 + 2 * east - 1.5 * north,
        }
    )
    coast = np.exp(-np.square(east + 0.7 * north))
    price = np.exp(0.5 * wealth + 0.8 * coast + 0.004 * age + 0.25 * rng.normal(size=n))
    return Dataset("houses", frame, np.minimum(price, 5.0), False)


def made_up(name: str) -> Dataset:
    """A table that comes from nowhere, of 800 rows; more for houses."""
    if name == "houses":
        return made_up_houses()
    rng = np.random.default_rng(len(name))
    if name == "friedman":
        X, y = make_friedman1(800, 10, noise=1.0, random_state=0)
    elif name in {"needles", "chance"}:
        X = rng.normal(size=(800, 12))
        told = X[:, 0] + X[:, 7] if name == "needles" else 0.0
        y = (told + rng.logistic(size=800) > 0).astype(np.int64)
    else:
        X, y = make_classification(
            800, 12, n_informative=8, n_redundant=2, n_classes=5, n_clusters_per_class=1, random_state=0
        )
    frame = pd.DataFrame(X, columns=[f"x{place}" for place in range(X.shape[1])])
    classes = name != "friedman"
    return Dataset(name, frame, y.astype(np.int64 if classes else np.float64), classes)


def find(name: str) -> Dataset:
    """A set by name; digits comes with scikit-learn, and some are made up."""
    if name in MADE_UP:
        return made_up(name)
    if name != "digits":
        return load(name)
    bunch = load_digits(as_frame=True)
    names = tuple(str(one) for one in bunch.target_names)
    return Dataset("digits", bunch.data, bunch.target.to_numpy().astype(np.int64), True, names)


def split_of(data: Dataset, seed: int) -> Split:
    """Rows and columns drawn by seed."""
    return per_seed(data, 4 if data.name == "Iris" else 8, seed)


def classes_of(data: Dataset) -> list[int] | None:
    """The public classes; None for numbers."""
    return np.unique(data.y).tolist() if data.classes else None


def bounds_of(data: Dataset) -> tuple[float, float]:
    """Of numbers: taken for public here."""
    return float(data.y.min()), float(data.y.max())


def _with_models(options: dict[str, Any]) -> dict[str, Any]:
    """Ridges, unless the paper's preset brings its own models."""
    models = {} if options.get("preset") == "paper" else {"local_models": Ridge()}
    return {"rounds": ROUNDS} | models | options


def leak(data: Dataset, privacy: Any, seed: int, share: float, **options: Any) -> LeakReport:
    """Attack one fit with canaries."""
    split = split_of(data, seed)
    absolute = options.get("preset") == "paper" and not data.classes
    return canary_leak(
        split.X_train,
        split.y_train,
        split.organizations,
        privacy=privacy,
        classes=classes_of(data),
        bounds=bounds_of(data),
        canaries=share,
        features=False,
        loss=AbsoluteError() if absolute else None,
        seed=seed,
        **_with_models(options),
    )


def score(data: Dataset, privacy: Any, seed: int, **options: Any) -> float:
    """Accuracy in percent (higher is better) or mean absolute deviation
    (lower is better), without canaries.
    """
    split = split_of(data, seed)
    model = (GALClassifier if split.classes else GALRegressor)(
        split.organizations, privacy=privacy, random_state=seed, **_with_models(options)
    )
    predicted = model.fit(split.X_train, split.y_train).predict(split.X_test)
    if data.classes:
        return float(100 * np.mean(predicted == split.y_test))
    return float(np.abs(predicted - split.y_test).mean())


# --- canaries


def judge_canaries(name: str, seeds: Sequence[int], run: Parallel) -> list[dict[str, Any]]:
    """Every attack on one set, without protection and at every epsilon."""
    data = find(name)
    classes = classes_of(data)
    assert classes is not None
    facts = []
    for epsilon in (None, *EPSILONS):
        jobs = []
        for seed in seeds:
            source = SeededNoise([seed, 5, round(10 * (epsilon or 0))])
            privacy = None if epsilon is None else RandomisedResponse(epsilon, classes, source)
            jobs.append(delayed(leak)(data, privacy, seed, MANY))
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
    canaries = first["attacks"][0]["canaries"]["with"]["of"]
    print(
        f"\n{first['set']}: {canaries} canaries over {first['runs']} seeds, blind guess {first['chance']:.1%}"
    )
    print(f"{'attack':28}" + "".join(f"{head:>24}" for head in heads))
    for place, attack in enumerate(first["attacks"]):
        cells = [_share(one["attacks"][place]["canaries"]["with"]) for one in facts]
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


# --- beside the paper's


def equal_epsilon(accuracy: float, classes: int | None) -> float:
    """The epsilon at which our mechanism leaks as much; of Laplace noise on labels the
    best guess is 1 - e^(-eps/2) / 2.
    """
    if classes is not None:
        epsilon = equivalent_epsilon(accuracy, classes)
    else:
        epsilon = (
            -2 * math.log(2 * (1 - accuracy)) if 0.5 < accuracy < 1 else math.inf if accuracy >= 1 else 0.0
        )
    return min(max(epsilon, 0.01), LARGEST_EPSILON)


def beside_the_paper(name: str, seeds: Sequence[int], preset: str, run: Parallel) -> dict[str, Any]:
    """One set: the paper's Laplace mechanism, and ours at the same leakage."""
    data = find(name)
    classes, (lower, upper) = classes_of(data), bounds_of(data)
    options = {"preset": preset} | ({} if preset == "paper" else {"cross_validation": 0})
    report = added_reports(
        run(delayed(leak)(data, PaperLaplace(1.0), seed, FEW, **options) for seed in seeds)
    )
    share = report.worst.canaries
    facts: dict[str, Any] = {
        "set": name,
        "classes": None if classes is None else len(classes),
        "attack": report.worst.name,
        "leakage": share.to_json(),
        "paper": run(delayed(score)(data, PaperLaplace(1.0), seed, **options) for seed in seeds),
        "unprotected": run(delayed(score)(data, None, seed) for seed in seeds),
    }
    for key, accuracy in (("ours", share.value), ("ours_less", share.low)):
        epsilon = equal_epsilon(accuracy, None if classes is None else len(classes))
        jobs = []
        for seed in seeds:
            source = SeededNoise([seed, 6])
            ours: Any = LaplaceLabels(epsilon, lower, upper, source)
            if classes is not None:
                ours = RandomisedResponse(epsilon, classes, source)
            jobs.append(delayed(score)(data, ours, seed))
        facts |= {key: run(jobs), f"{key}_epsilon": epsilon}
        facts[f"{key}_wins"] = _at_least_as_good(facts[key], facts["paper"], classes is not None)
    return facts


def _at_least_as_good(ours: Sequence[float], theirs: Sequence[float], higher: bool) -> bool:
    gain = float(np.mean(ours) - np.mean(theirs))
    return gain >= -1e-9 if higher else gain <= 1e-9


def print_paper(facts: Sequence[dict[str, Any]], preset: str) -> None:
    """The table with who wins."""
    print(
        f"\nThe paper's Laplace mechanism, alpha = 1 ({preset} preset), and ours at equal leakage of canaries"
    )
    print(
        "accuracy in % (higher is better); Diabetes and BostonHousing: mean absolute deviation (lower is "
        "better)"
    )
    print(
        f"{'set':14}{'canaries guessed':>26}  {'paper':>12}{'epsilon':>9}{'ours':>13}  "
        f"{'epsilon':>8}{'ours':>13}  {'unprotected':>12}"
    )
    for one in facts:
        share = Share(int(one["leakage"]["right"]), int(one["leakage"]["of"]))
        wins = ["*" if one[key] else " " for key in ("ours_wins", "ours_less_wins")]
        print(
            f"{one['set']:14}{share!s:>26}  "
            f"{_score(one['paper']):>12}{one['ours_epsilon']:9.2f}{_score(one['ours']):>13}{wins[0]} "
            f"{one['ours_less_epsilon']:8.2f}{_score(one['ours_less']):>13}{wins[1]} "
            f"{_score(one['unprotected']):>12}",
            flush=True,
        )
    won = [sum(one[key] for one in facts) for key in ("ours_wins", "ours_less_wins")]
    print(
        f"* ours is at least as good: on {won[0]} of {len(facts)} sets at equal leakage, on {won[1]} at "
        "less (the lower end of the interval)"
    )


# --- the private stack


def stack(name: str, seed: int, model: Any, rows: int) -> dict[str, float]:
    """Log loss of rows that nobody learned from, by what was learned; and how often the refit was used."""
    data = find(name)
    split = per_seed(data, 2, seed)
    chosen = np.random.default_rng(seed).permutation(len(split.y_train))[:rows]
    X, y = split.X_train.iloc[chosen], split.y_train[chosen]
    holder = next(iter(split.organizations))
    classes = np.unique(data.y).tolist()
    alone = {holder: split.organizations[holder]}

    def loss_of(organizations: Any, **options: Any) -> tuple[float, Any]:
        made = GALClassifier(organizations, local_models=model, rounds=ROUNDS, random_state=seed, **options)
        probability = made.fit(X, y).predict_proba(split.X_test)
        return float(log_loss(split.y_test, probability, labels=made.classes_)), made

    found = {"alone": loss_of(alone)[0], "assisted": loss_of(split.organizations)[0]}
    for epsilon in EPSILONS[:3]:
        noise = [seed, 7, round(10 * epsilon)]
        for key, options in (("stack", {}), ("refit", {"fitted": "in-sample"})):
            privacy = RandomisedResponse(epsilon, classes, SeededNoise(noise))
            value, made = loss_of(split.organizations, privacy=privacy, **options)
            found[f"{key} {epsilon:g}"] = value
            if key == "stack":
                own = made.private_refit_.own
                found[f"used {epsilon:g}"] = float(own.used)
                found[f"own {epsilon:g}"] = own.alone_loss
    return found


def print_stack(name: str, found: Sequence[dict[str, float]], started: float) -> None:
    """Means over seeds, with the standard error of the difference to alone."""
    mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
    print(f"\n{name}: alone {mean['alone']:.4f}, assisted {mean['assisted']:.4f} ({len(found)} seeds)")
    for epsilon in EPSILONS[:3]:
        gain = [one["alone"] - one[f"stack {epsilon:g}"] for one in found]
        error = float(np.std(gain)) / math.sqrt(max(len(gain) - 1, 1))
        print(
            f"  epsilon {epsilon:g}: stack {mean[f'stack {epsilon:g}']:.4f}, refit before "
            f"{mean[f'refit {epsilon:g}']:.4f}; alone minus stack {np.mean(gain):+.4f} (se {error:.4f}); "
            f"used in {mean[f'used {epsilon:g}']:.0%}, own loss at home {mean[f'own {epsilon:g}']:.4f}"
        )
    print(f"  {time.perf_counter() - started:.0f} s", flush=True)


def judge_stack(chosen: argparse.Namespace, run: Parallel) -> None:
    """Every set, by one kind of local model."""
    for name in chosen.sets or STACKED:
        started = time.perf_counter()
        jobs = (delayed(stack)(name, seed, MODELS[chosen.model], chosen.rows) for seed in range(chosen.seeds))
        print_stack(name, run(jobs), started)


# --- never worse than alone

SPLIT = ("QSAR", "BreastCancer", "CreditDefault", "Adult", "Diabetes", "BostonHousing")


def against_alone(name: str, seed: int, model: Any, rows: int) -> dict[str, float]:
    """What is lost on rows that nobody learned from: alone, with another seed, and with the private stack."""
    data = find(name)
    split = per_seed(data, 2, seed)
    chosen = np.random.default_rng([seed, 9]).permutation(len(split.y_train))[:rows]
    X, y = split.X_train.iloc[chosen], split.y_train[chosen]
    tested = np.random.default_rng([seed, 10]).permutation(len(split.y_test))[:TESTED]
    if data.classes:  # of few rows a rare class may be missing
        tested = tested[np.isin(split.y_test[tested], np.unique(y))]
    X_test, y_test = split.X_test.iloc[tested], split.y_test[tested]
    make = GALClassifier if data.classes else GALRegressor
    holder = next(iter(split.organizations))

    def lost(organizations: Any, privacy: Any, again: int = 0) -> tuple[float, Any]:
        options: dict[str, Any] = {"local_models": model, "rounds": ROUNDS, "random_state": seed + again}
        made = make(organizations, privacy=privacy, **options).fit(X, y)
        if data.classes:
            return float(log_loss(y_test, made.predict_proba(X_test), labels=made.classes_)), made
        return 1 - float(r2_score(y_test, made.predict(X_test))), made

    own = {holder: split.organizations[holder]}
    found = {"alone": lost(own, None)[0], "again": lost(own, None, again=1000)[0]}
    for epsilon in EPSILONS[:3]:
        noise = SeededNoise([seed, 11, round(10 * epsilon)])
        privacy: Any = LaplaceLabels(epsilon, *bounds_of(data), noise)
        if data.classes:
            privacy = RandomisedResponse(epsilon, np.unique(data.y).tolist(), noise)
        value, made = lost(split.organizations, privacy)
        found |= {f"stack {epsilon:g}": value, f"used {epsilon:g}": float(made.private_refit_.own.used)}
    return found


TESTED = 5000
"""Rows that judge, at most."""


def judge_alone(chosen: argparse.Namespace, run: Parallel) -> None:
    """One line for each table and epsilon, as it is found."""
    print("| table | alone | epsilon | private stack | alone minus stack (se) | used |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in chosen.sets or SPLIT:
        jobs = (
            delayed(against_alone)(name, seed, MODELS[chosen.model], chosen.rows)
            for seed in range(100, 100 + chosen.seeds)
        )
        found = run(jobs)
        alone, again = (np.array([one[key] for one in found]) for key in ("alone", "again"))
        by_chance = (alone - again).std(ddof=1) / math.sqrt(len(alone))
        print(
            f"| {name} | {alone.mean():.4f} | alone, another seed | {again.mean():.4f} | "
            f"{(alone - again).mean():+.4f} ({by_chance:.4f}) | |",
            flush=True,
        )
        for epsilon in EPSILONS[:3]:
            stacked = np.array([one[f"stack {epsilon:g}"] for one in found])
            gain = alone - stacked
            error = gain.std(ddof=1) / math.sqrt(len(gain))
            used = np.mean([one[f"used {epsilon:g}"] for one in found])
            print(
                f"| {name} | {alone.mean():.4f} | {epsilon:g} | {stacked.mean():.4f} | "
                f"{gain.mean():+.4f} ({error:.4f}) | {used:.0%} |",
                flush=True,
            )


# --- columns


def columns(
    name: str, model: str, rounds: int, three: bool, noise: str, seed: int = 0
) -> list[list[tuple[float, float]]]:
    """R2 of every column, with messages and without: of hers and of a third party's from residuals, of the
    others' from answers.
    """
    data = find(name)
    names, (lower, upper) = list(data.X.columns), bounds_of(data)
    half, first, second = len(names) // 2, len(names) - 2 * (len(names) // 3), len(names) - len(names) // 3
    halves = {"clinic": names[:half], "lab": names[half:]}
    parts = {"clinic": names[:first], "lab": names[first:second], "shop": names[second:]} if three else halves
    mechanisms = {
        "none": None,
        "labels 0.1": LaplaceLabels(0.1, lower, upper, SeededNoise(seed)),
        "residuals 1": GaussianResiduals(1.0, 1e-5, clip=(upper - lower) / 2, source=SeededNoise(seed)),
    }
    transcript = Transcript()
    options: dict[str, Any] = {"local_models": MODELS[model], "patience": None, "random_state": seed}
    made = GALRegressor(
        parts, rounds=rounds, privacy=mechanisms[noise], cross_validation=0, on_message=transcript, **options
    ).fit(data.X, data.y)
    sent = transcript.sent(made.task_rows_, "clinic")
    rng = np.random.default_rng(seed)
    known = np.zeros(len(sent.rows), dtype=np.bool_)
    known[rng.choice(len(known), KNOWN, replace=False)] = True
    views = {name: data.X[own].iloc[sent.rows] for name, own in parts.items()}
    targets = {name: view for name, view in views.items() if name != "lab"}
    own = numbers_of(views["lab"])
    read = columns_from_residuals(sent.residual[:, :, 0], own, targets, known, rng, by="lab")
    others = {name: view for name, view in views.items() if name != "clinic"}
    hers = np.hstack([numbers_of(views["clinic"]), data.y[sent.rows, None]])
    answered = columns_from_answers(sent.answers, others, hers, known, rng)
    of = [[one for one in read if one.organization == name] for name in ("clinic", "shop")]
    return [[(one.with_messages.value, one.without.value) for one in found] for found in (*of, answered)]


def judge_columns(chosen: argparse.Namespace, run: Parallel) -> None:
    """Mean R2 of the columns, by local model, rounds, organizations and noise."""
    cases = [
        (model, rounds, three, noise)
        for model in chosen.models
        for rounds, three, noise in (
            (10, False, "none"),
            (50, False, "none"),
            (20, True, "none"),
            (10, False, "labels 0.1"),
            (10, False, "residuals 1"),
        )
    ]
    print(f"{KNOWN} known rows: mean R2 of hers and a third party's columns from residuals,")
    print("of the others' from answers; in brackets without messages")
    for name in chosen.sets or ("Diabetes",):
        for model, rounds, three, noise in cases:  # one at a time: each line is there when it is found
            [found] = run([delayed(columns)(name, model, rounds, three, noise)])
            cells = [
                f"{'-':11}" if not one else "{:.2f} ({:.2f})".format(*np.maximum(0, one).mean(axis=0))
                for one in found
            ]
            who = "three" if three else "two"
            print(
                f"{name} {model:9} {rounds:3} rounds, {who:5} organizations, noise {noise:12}"
                + "  ".join(cells),
                flush=True,
            )


CURVE = (None, 30.0, 10.0, 3.0, 1.0)
"""epsilon for columns; None: no fresh noise."""


def curve(name: str, model: str, epsilon: float | None, seed: int) -> tuple[float, float, float]:
    """R2 or log loss on rows that nobody learned from; R2 of the label holder's columns, with and without
    the residuals.
    """
    split = per_seed(find("Diabetes"), 2, seed)
    classes = name == "classes"
    y, y_test = ((one > 140 if classes else one) for one in (split.y_train, split.y_test))
    more = {} if epsilon is None else {"columns_epsilon": epsilon, "columns_delta": 1e-6}
    noise = SeededNoise([seed, 8])
    privacy: Any = LaplaceLabels(1.0, 0, 400, noise, **more)
    if classes:
        privacy = RandomisedResponse(4.0, [False, True], noise, **more)
    transcript = Transcript()
    made = (GALClassifier if classes else GALRegressor)(
        split.organizations,
        local_models=MODELS[model],
        rounds=ROUNDS,
        privacy=privacy,
        on_message=transcript,
        random_state=seed,
    ).fit(split.X_train, y)
    if classes:
        score = float(log_loss(y_test, made.predict_proba(split.X_test)))
    else:
        score = float(r2_score(y_test, made.predict(split.X_test)))
    holder, lab = split.organizations
    sent = transcript.sent(made.task_rows_, holder)
    rng = np.random.default_rng(seed)
    known = np.zeros(len(sent.rows), dtype=np.bool_)
    known[rng.choice(len(known), KNOWN, replace=False)] = True
    views = {one: split.X_train[own].iloc[sent.rows] for one, own in split.organizations.items()}
    read = columns_from_residuals(
        sent.residual[:, :, 0],
        numbers_of(views[lab]),
        {holder: views[holder]},
        known,
        rng,
        by=lab,
        classes=classes,
        loss=privacy.public_loss(BinaryLogLoss() if classes else SquaredError()),
    )
    explained = [np.mean([max(0.0, one.value) for one in ones]) for ones in _with_and_without(read)]
    return score, float(explained[0]), float(explained[1])


def _with_and_without(read: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    return [one.with_messages for one in read], [one.without for one in read]


def judge_curve(chosen: argparse.Namespace, run: Parallel) -> None:
    """One line for each kind of labels, local model and epsilon."""
    print("| labels | local model | epsilon for columns | score | columns from residuals | without them |")
    print("|---|---|---:|---:|---:|---:|")
    seeds = range(min(chosen.seeds, 5))
    for name in chosen.labels:
        for model in chosen.models:
            plain: list[float] = []
            for epsilon in CURVE:
                found = np.array(run(delayed(curve)(name, model, epsilon, seed) for seed in seeds))
                plain = plain or found[:, 0].tolist()
                lost = found[:, 0] - plain
                error = f" ({lost.mean():+.3f}, se {lost.std(ddof=1) / math.sqrt(len(lost)):.3f})"
                said = "none" if epsilon is None else f"{epsilon:g}"
                print(
                    f"| {name} | {model} | {said} | {found[:, 0].mean():.3f}"
                    f"{'' if epsilon is None else error} | {found[:, 1].mean():.2f} | "
                    f"{found[:, 2].mean():.2f} |",
                    flush=True,
                )


def answers(model: str, min_rows: int, noise: float) -> list[list[float]]:
    """R2 of Diabetes' first six columns in the answers of who has them: honest, and chosen residuals."""
    data, rng = find("Diabetes").X, np.random.default_rng(0)
    organization = Organization("lab", data.iloc[:, :6], make_model("lab", model, {}))
    found = own_columns_explained(
        organization,
        10,
        1,
        fewest_weighted=min_rows,
        as_sent=lambda sent: sent + rng.normal(scale=noise, size=sent.shape),
    )
    return [[one.honest.value for one in found.columns], [one.curious.value for one in found.columns]]


def judge_answers(run: Parallel) -> None:
    """What answers tell, by local model, where rows can be weighed away and where not, and with noise."""
    models = ("linear", "tabular", "random_forest", "gradient_boosting")
    settings = ((20, 0.0), (200, 0.0), (20, 1.0))
    found = run(delayed(answers)(model, *one) for model in models for one in settings)
    print(
        "| local model | ordinary residuals | chosen | chosen, `min_rows = 200` | chosen, noise of size 1 |"
    )
    print("|---|---|---|---|---|")
    for place, model in enumerate(models):
        free, held, noisy = found[3 * place : 3 * place + 3]
        scores = [f"{max(0, np.median(one)):.2f}, {max(0, *one):.2f}" for one in (*free, held[1], noisy[1])]
        print(f"| {model} | {' | '.join(scores)} |")


TAKEN_APART = 20
"""Rounds of a task whose sums are taken apart."""


def sums(model: str, beside: str, seed: int) -> list[list[float]]:
    """R2 of four columns in a sum: with ordinary residuals and with chosen ones."""
    data = find("Diabetes").X.sample(frac=1, axis=1, random_state=seed)

    def organization(name: str, first: int, last: int) -> Organization:
        return Organization(name, data.iloc[:, first:last], make_model(name, model, {}))

    lab = organization("lab", 0, 4)
    others = {
        "itself": [],
        "a sum of three": [organization("shop", 4, 7), organization("ward", 7, 10)],
        "a sum of eight": pretended(lab, 7, seed),
    }
    found = own_columns_explained(lab, TAKEN_APART, 1, n_known=KNOWN, beside=others[beside], seed=seed)
    return [[one.honest.value for one in found.columns], [one.curious.value for one in found.columns]]


def judge_sums(chosen: argparse.Namespace, run: Parallel) -> None:
    """What a sum tells of one of those in it, by local model; each line as it is found."""
    print("| local model | what she gets | ordinary residuals | chosen |")
    print("|---|---|---|---|")
    for model in ("linear", "tabular", "gradient_boosting"):
        for beside in ("itself", "a sum of three", "a sum of eight"):
            found = run(delayed(sums)(model, beside, seed) for seed in range(min(chosen.seeds, 5)))
            cells = [
                f"{np.mean([max(0, np.median(one[way])) for one in found]):.2f}, "
                f"{np.mean([max(0, *one[way]) for one in found]):.2f}"
                for way in range(2)
            ]
            print(f"| {model} | {beside} | {' | '.join(cells)} |", flush=True)


def metered(name: str, model: str, rows: int, seed: int) -> list[str]:
    """The meter on one table, without and with noisy labels: one line of cells each."""
    data = find(name)
    chosen = np.random.default_rng([seed, 12]).permutation(len(data.y))[:rows]
    X, y = data.X.iloc[chosen], data.y[chosen]
    classes = np.unique(y).tolist() if data.classes else None
    noisy: Any = LaplaceLabels(1.0, *bounds_of(data)) if classes is None else RandomisedResponse(1.0, classes)
    found = rehearse_all(
        X,
        y,
        per_seed(data, 3, seed).organizations,
        mechanisms={"none": None, "epsilon 1": noisy},
        local_models=MODELS[model],
        rounds=ROUNDS,
        seeds=(seed,),
    )
    return [" | ".join(_metered_cells(one)) for one in found]


def _metered_cells(one: Rehearsal) -> list[str]:
    leak, told = one.leak, one.predictions
    hers = [each for each in leak.received if each.organization == one.label_holder]
    third = [each for each in leak.received if each.organization != one.label_holder]
    guessed, bound = leak.worst.canaries, leak.bound
    most = max((each.with_messages.value for each in told.columns), default=0.0)
    signs = max(leak.signs, key=lambda each: max(each.columns), default=None)
    return [
        one.name,
        f"{guessed.value:.0%} of {guessed.of}" + ("" if bound is None else f" ({bound:.0%} allowed)"),
        *(_with_without(each) for each in (hers, third, leak.reconstructions)),
        str(told.membership),
        f"{max(most, 0):.2f}",
        "none" if signs is None else f"{signs.vectors}, {max(signs.columns):.2f}",
    ]


def _with_without(found: Sequence[Reconstruction]) -> str:
    if not found:
        return "-"
    means = [np.mean([max(0.0, one.value) for one in ones]) for ones in _with_and_without(found)]
    return f"{means[0]:.2f} ({means[1]:.2f})"


def judge_meter(chosen: argparse.Namespace, run: Parallel) -> None:
    """Two lines for each table and local model, as they are found."""
    print(
        "| table | local model | labels | canaries guessed | her columns, residuals | third parties' | "
        "the others', answers | membership, AUC | most of a column, predictions | signs, most of a column |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in chosen.sets or METERED:
        numeric = all(kind.kind in "iufb" for kind in find(name).X.dtypes)
        for model in chosen.models if numeric else ["default"]:  # the others take numbers only
            [lines] = run([delayed(metered)(name, model, min(chosen.rows, 3000), 0)])
            for line in lines:
                print(f"| {name} | {model} | {line} |", flush=True)


def _score(scores: Sequence[float]) -> str:
    return f"{np.mean(scores):.2f}({np.std(scores):.2f})"


def judge_later(chosen: argparse.Namespace, run: Parallel) -> None:
    """The parts that are only run when they are named."""
    if chosen.part == "stack":
        judge_stack(chosen, run)
    elif chosen.part == "alone":
        judge_alone(chosen, run)
    elif chosen.part == "curve":
        judge_curve(chosen, run)
    elif chosen.part == "columns":
        judge_columns(chosen, run)
    elif chosen.part == "sums":
        judge_sums(chosen, run)
    elif chosen.part == "meter":
        judge_meter(chosen, run)
    else:
        judge_answers(run)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=[*PARTS, *LATER], help="default: the first two")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--sets", nargs="+", choices=[*DATASETS, "digits", *MADE_UP], metavar="SET")
    parser.add_argument(
        "--preset", choices=["default", "paper"], default="default", help="of the paper's side"
    )
    parser.add_argument("--quick", action="store_true", help="three seeds")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--model", choices=["default", "ridge", "boosting"], default="default", help="of stack"
    )
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=[*MODELS], help="of curve, columns and meter"
    )
    parser.add_argument("--labels", nargs="+", default=["numbers", "classes"], help="of curve")
    parser.add_argument("--rows", type=int, default=10**9, help="to learn from at most, of stack")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    if chosen.part in LATER:
        with Parallel(n_jobs=chosen.jobs) as run:
            judge_later(chosen, run)
        return
    seeds, started = range(3 if chosen.quick else chosen.seeds), time.perf_counter()
    found: dict[str, list[dict[str, Any]]] = {"canaries": [], "paper": []}
    with Parallel(n_jobs=chosen.jobs) as run:
        for name in chosen.sets or JUDGED if chosen.part != "paper" else ():
            if name in JUDGED:
                facts = judge_canaries(name, seeds, run)
                found["canaries"] += facts
                if not chosen.json:
                    print_canaries(facts)
        for name in chosen.sets or PAPER_SETS if chosen.part != "canaries" else ():
            if name in PAPER_SETS:
                try:
                    found["paper"].append(beside_the_paper(name, seeds, chosen.preset, run))
                except MissingDataError as error:
                    raise SystemExit(f"{error}; or choose other --sets") from None
    if chosen.json:
        print(json.dumps(found, indent=2))
        return
    if found["paper"]:
        print_paper(found["paper"], chosen.preset)
    print(f"\n{time.perf_counter() - started:.0f} s, {len(seeds)} seeds")


if __name__ == "__main__":
    main()
