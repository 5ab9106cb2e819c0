"""The whole leak meter on any table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from gal.evaluate.rehearsal import Rehearsal, rehearse_all
from gal.privacy import LaplaceLabels, RandomisedResponse
from gal.privacy.leakage import Reconstruction
from gal_bench.data.splits import per_seed
from privacy_parts.columns import with_and_without
from privacy_parts.tables import MODELS, ROUNDS, bounds_of, find

METERED = ("digits", "Wine", "Adult", "CreditDefault", "Covertype", "houses")


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
    signs = max(leak.signs, key=lambda each: each.most.told, default=None)
    return [
        one.name,
        f"{guessed.value:.0%} of {guessed.of}" + ("" if bound is None else f" ({bound:.0%} allowed)"),
        *(_with_without(each) for each in (hers, third, leak.reconstructions)),
        str(told.membership),
        f"{max(most, 0):.2f}",
        "none" if signs is None else f"{signs.vectors}, {signs.most.told:.2f}",
    ]


def _with_without(found: Sequence[Reconstruction]) -> str:
    if not found:
        return "-"
    means = [np.mean([max(0.0, one.value) for one in ones]) for ones in with_and_without(found)]
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
