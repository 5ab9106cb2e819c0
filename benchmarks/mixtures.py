"""What mixtures of columns bring, and what they tell of the columns.

    python benchmarks/mixtures.py CreditDefault Adult --seeds 6 --first 540 --mixtures 0 2 4

Rows are divided as in ``choices.py``: those that the page of peers is judged on decide nothing; ``--page``
judges on those. By number of mixtures: score and log loss, of the way from the better model alone to the best
pooled boosting, CPU seconds and megabytes; then how much of each column of the others' the label holder
finds in all that they answered (R2 on rows that she does not know), where she knows so many.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from choices import divided, of_two_classes
from gal import GALClassifier
from gal.evaluate.metrics import auc, log_loss
from gal.privacy.leakage import Transcript
from gal.privacy.leakage.reconstruction import columns_from_answers, numbers_of
from gal_bench.peers import methods
from gal_bench.peers.tables import SETS, PeerTable, peer_tables

LOOKED_AT, KNOWN = 3000, 1000
"""Rows whose columns are looked for, and those of them that the label holder knows."""


@dataclass(frozen=True)
class Mixed:
    """What came of so many mixtures."""

    facts: tuple[float, float, float, float]
    """Score, log loss, CPU seconds, megabytes."""
    told: dict[str, list[float]]


def learned(table: PeerTable, seed: int, mixtures: int, *, look: bool) -> Mixed:
    """Learn as always; what the label holder finds is looked at on request."""
    started, seen = time.process_time(), Transcript()
    model = GALClassifier(
        table.organizations, random_state=seed, mixtures=mixtures, on_message=seen if look else None
    ).fit(table.X, table.y)
    said = model.predict_proba(table.X_test)
    cpu, moved = time.process_time() - started, model.traffic_.sent + model.traffic_.received
    facts = auc(table.y_test, said[:, 1]), log_loss(table.y_test, said), cpu, moved / 1e6
    return Mixed(facts, told(table, model, seen) if look else {})


def told(table: PeerTable, model: GALClassifier, seen: Transcript) -> dict[str, list[float]]:
    """By organization: R2 of each of its columns."""
    holder = model.label_holder_
    sent = seen.sent(model.task_rows_, holder)
    sent = sent.take(np.arange(min(LOOKED_AT, len(sent.rows))))
    rows = table.X.iloc[sent.rows]
    views = {name: rows[columns] for name, columns in table.organizations.items() if name != holder}
    own = np.column_stack([numbers_of(rows[table.organizations[holder]]), table.y[sent.rows]])
    known, rng = np.arange(len(sent.rows)) < KNOWN * len(sent.rows) // LOOKED_AT, np.random.default_rng(0)
    found = columns_from_answers(sent.answers, views, own, known, rng, more=[sent.further_answers])
    return {
        name: [one.with_messages.value for one in found if one.organization == name] for name in sorted(views)
    }


def compare(table: PeerTable, seeds: range, mixtures: list[int], rows: int, *, page: bool) -> None:
    """One line per number of mixtures, and what it tells."""
    drawn = [table if page else divided(table, seed, rows) for seed in seeds]
    pairs = list(zip(drawn, seeds, strict=True))
    peers = (methods.gal_alone, methods.xgboost_alone, methods.xgboost_pooled, methods.lightgbm_pooled)
    others = np.array([[_judged(one, peer(one, seed)[0]) for peer in peers] for one, seed in pairs])
    alone, pooled = others.mean(axis=0)[:2], others.mean(axis=0)[2:]
    ends = [(max(alone[:, 0]), max(pooled[:, 0])), (min(alone[:, 1]), min(pooled[:, 1]))]
    print(
        f"{table.name}: alone {ends[0][0]:.4f}, {ends[1][0]:.4f}; pooled {ends[0][1]:.4f}, {ends[1][1]:.4f}"
    )
    first = None
    for many in mixtures:
        found = [learned(one, seed, many, look=seed == seeds[0]) for one, seed in pairs]
        facts = np.array([one.facts for one in found])
        first = facts if first is None else first
        score, loss, cpu, size = facts.mean(axis=0)
        way = [
            (value - start) / (end - start) for value, (start, end) in zip((score, loss), ends, strict=True)
        ]
        change = facts - first
        error = change.std(axis=0, ddof=1) / np.sqrt(len(seeds)) if len(seeds) > 1 else change[0] * np.nan
        print(
            f"  {many} mixtures: {score:.4f}, log loss {loss:.4f}, of the way {way[0]:.1%} and {way[1]:.1%}; "
            f"beside the first {change[:, 0].mean():+.4f} ({error[0]:.4f}), {change[:, 1].mean():+.4f} "
            f"({error[1]:.4f}); {cpu:.1f} CPU s, {size:.1f} MB"
        )
        for name, columns in found[0].told.items():
            print(
                f"    R2 of the columns of {name}: {', '.join(f'{one:.2f}' for one in columns)}", flush=True
            )


def _pair(values: Sequence[float]) -> str:
    return ", ".join(f"{one:.4f}" for one in values)


def _judged(table: PeerTable, said: Any) -> tuple[float, float]:
    return auc(table.y_test, said[:, 1]), log_loss(table.y_test, said)


def main() -> None:
    """Every set that was named; several classes as the largest against all others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first", type=int, default=540, help="the first seed")
    parser.add_argument("--mixtures", type=int, nargs="*", default=[0, 2, 4])
    parser.add_argument("--rows", type=int, default=10**9, help="rows to learn from, at most")
    parser.add_argument("--page", action="store_true", help="judge on the rows of the page of peers")
    given = parser.parse_args()
    for name in given.sets:
        table = next(iter(peer_tables(name, None, 0)))
        two = table if table.n_classes == 2 else of_two_classes(table)
        compare(
            two, range(given.first, given.first + given.seeds), given.mixtures, given.rows, page=given.page
        )


if __name__ == "__main__":
    main()
