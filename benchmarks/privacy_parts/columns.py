"""What is sent tells of columns: from residuals, answers and sums, and what fresh noise leaves of it."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import log_loss, r2_score

from gal import GALClassifier, GALRegressor
from gal.core.losses import BinaryLogLoss
from gal.engine.organization import Organization
from gal.models.registry import make_model
from gal.privacy import LaplaceLabels, RandomisedResponse, SeededNoise
from gal.privacy.leakage import Transcript, columns_from_answers, columns_from_residuals
from gal.privacy.leakage.own_columns import own_columns_explained, pretended
from gal.privacy.leakage.reconstruction import numbers_of
from gal_bench.data.splits import per_seed
from privacy_parts.tables import KNOWN, MODELS, ROUNDS, bounds_of, find


def columns(
    name: str, model: str, rounds: int, three: bool, noise: str, n_parts: int, rows: int, seed: int = 0
) -> list[list[tuple[float, float]]]:
    """R2 of every column, with messages and without: of hers and of a third party's from residuals, of the
    others' from answers; cross-validated in so many parts (0: not at all), whose messages count, too.
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
    options: dict[str, Any] = {"local_models": MODELS[model], "patience": None, "random_state": seed}
    options |= {"privacy": mechanisms[noise], "cross_validation": n_parts, "on_message": transcript}
    made = GALRegressor(parts, rounds=rounds, **options).fit(data.X, data.y)
    sent = transcript.sent(made.task_rows_, "clinic")
    rng = np.random.default_rng(seed)
    known = np.zeros(len(sent.rows), dtype=np.bool_)
    known[rng.choice(len(known), KNOWN, replace=False)] = True
    views = {name: data.X[own].iloc[sent.rows] for name, own in parts.items()}
    targets = {name: view for name, view in views.items() if name != "lab"}
    own = numbers_of(views["lab"])
    read = columns_from_residuals(sent.residual, own, targets, known, rng, by="lab")
    others = {name: view for name, view in views.items() if name != "clinic"}
    hers = np.hstack([numbers_of(views["clinic"]), data.y[sent.rows, None]])
    answered = columns_from_answers(sent.answers, others, hers, known, rng, more=sent.more_answers)
    of = [[one for one in read if one.organization == name] for name in ("clinic", "shop")]
    return [[(one.with_messages.value, one.without.value) for one in found] for found in (*of, answered)]


def judge_columns(chosen: argparse.Namespace, run: Parallel) -> None:
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
    print(f"{KNOWN} known rows: mean R2 of hers and a third party's columns from residuals,")
    print("of the others' from answers; in brackets without messages")
    seed = 0 if chosen.first_seed is None else chosen.first_seed
    for name in chosen.tables or chosen.sets or ("Diabetes",):
        for model, rounds, three, noise, n_parts in cases:  # one at a time: a line is there when it is found
            how = (model, rounds, three, noise, n_parts, chosen.rows, seed)
            [found] = run([delayed(columns)(name, *how)])
            cells = [
                f"{'-':11}" if not one else "{:.2f} ({:.2f})".format(*np.maximum(0, one).mean(axis=0))
                for one in found
            ]
            who = "three" if three else "two"
            print(
                f"{find(name).name} {model:9} {rounds:3} rounds, {who:5} organizations, {n_parts} parts, "
                f"noise {noise:12}" + "  ".join(cells),
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
        sent.residual,
        numbers_of(views[lab]),
        {holder: views[holder]},
        known,
        rng,
        by=lab,
        loss=privacy.public_loss(BinaryLogLoss()) if classes else None,
    )
    explained = [np.mean([max(0.0, one.value) for one in ones]) for ones in with_and_without(read)]
    return score, float(explained[0]), float(explained[1])


def with_and_without(read: Sequence[Any]) -> tuple[list[Any], list[Any]]:
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
        ROUNDS,
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
