"""What is sent tells of labels: canaries under every attack, and beside the paper's mechanism."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.linear_model import Ridge

from gal import GALClassifier, GALRegressor
from gal.core.losses import AbsoluteError
from gal.evaluate.rehearsal import canary_leak
from gal.privacy import LaplaceLabels, PaperLaplace, RandomisedResponse, SeededNoise
from gal.privacy.accounting import LARGEST_EPSILON
from gal.privacy.leakage import LeakReport, Share, added_reports, equivalent_epsilon
from gal_bench.data.datasets import Dataset
from privacy_parts.tables import EPSILONS, ROUNDS, bounds_of, classes_of, find, split_of

JUDGED = ("BreastCancer", "Wine", "digits")
PAPER_SETS = ("Diabetes", "BostonHousing", "Blob", "Iris", "Wine", "BreastCancer", "QSAR")
MANY, FEW = 0.2, 0.1
"""Of training rows that are canaries: for the guarantee, which does not depend on it; and beside the paper's
mechanism, whose leakage does (chance labels make residuals larger)."""


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


def _score(scores: Sequence[float]) -> str:
    return f"{np.mean(scores):.2f}({np.std(scores):.2f})"
