"""Whether choices about large tables hold on rows that nobody looked at when they were made.

    python benchmarks/choices.py Adult Letter --seeds 3 --rows 8000

Of every table of ``gal bench peers`` only the rows to learn from are used: each seed divides them anew into
rows to learn from and rows to judge on, so the rows that the page of peers is judged on decide nothing here.
Each choice is undone by itself; what is printed is score and log loss of today's, and what undoing the choice
changes, paired by seed, with its standard error. ``--crossed`` adds interaction probes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from gal import GALClassifier
from gal.engine import interactions, stacking, task_making
from gal.evaluate.metrics import accuracy, auc, log_loss
from gal.models import answer_network
from gal.models.tabular import tabular_model, wide_ridge
from gal_bench.peers.tables import SETS, PeerTable, peer_tables

UNDONE: Mapping[str, list[tuple[Any, str, Any]]] = {
    "today": [],
    "closing model without validation rows": [(stacking.Stacking, "whole", lambda _, closing, *__: closing)],
    "for two classes, closing model grown anew on all rows": [
        (stacking, "TREES_OF_TWO", stacking.TREES),
        (stacking, "_together", lambda _, more: more),
    ],
    "five trees at 0.1 for several outputs": [
        (tabular_model, "TREES_OF_SEVERAL", 5),
        (tabular_model, "RATE_OF_SEVERAL", 0.1),
    ],
    "closing models whose first trees settle nothing": [(stacking, "_settled", lambda *_: False)],
    "residuals that do not go by the curve of the loss": [(task_making, "_curved", lambda *_, **__: False)],
    "a tenth of the rows validates, another chooses": [(task_making, "JUDGES", 10**9)],
    "for two classes, ten trees at 0.1": [(tabular_model, "TREES", 10), (tabular_model, "RATE", 0.1)],
    "for two classes, a closing forest whose trees all see all rows": [(stacking, "MUCH", -1.0)],
    "for two classes, a closing forest whose trees never see all rows": [(stacking, "MUCH", 2.0)],
    "trees that look at half of the columns": [
        (
            tabular_model,
            "HistGradientBoostingRegressor",
            partial(HistGradientBoostingRegressor, max_features=0.5),
        )
    ],
    "inner products of long numbers": [(wide_ridge, "COARSE", np.inf)],
    "for several classes, no network": [(stacking, "_with_network", lambda closing, *_: closing)],
    "for several classes, a network that sees every row half as often": [(answer_network, "VISITS", 30)],
    "for two classes, no network after crossed residuals": [
        (interactions, "_with_network", lambda _, found, *__: None if found.model is None else found)
    ],
    "for several classes, no network, and a forest that is no more certain than it says": [
        (stacking, "_with_network", lambda closing, *_: closing),
        (stacking, "_sharpness", lambda *_: 1.0),
        (stacking, "LEAF_OF_SEVERAL", 2),
    ],
    "all three of several classes": [
        (stacking, "_with_network", lambda closing, *_: closing),
        (stacking, "_sharpness", lambda *_: 1.0),
        (stacking, "LEAF_OF_SEVERAL", 2),
        (tabular_model, "TREES_OF_SEVERAL", 5),
        (tabular_model, "RATE_OF_SEVERAL", 0.1),
    ],
}
"""What each choice is undone by: a place, a name there, and what it was before, or would be."""


@dataclass(frozen=True)
class Judged:
    """What came of it on the rows to judge on."""

    score: float
    log_loss: float
    cpu_seconds: float


@contextmanager
def undone(choice: str) -> Iterator[None]:
    """Today's code without this choice."""
    with ExitStack() as stack:
        for place, name, before in UNDONE[choice]:
            stack.enter_context(patch.object(place, name, before))
        yield


def divided(table: PeerTable, seed: int, rows: int) -> PeerTable:
    """The rows to learn from, divided anew; never the table's own rows to judge on."""
    learn, judge = train_test_split(
        np.arange(len(table.y)), test_size=0.25, random_state=1000 + seed, stratify=table.y
    )
    learn = learn[:rows]
    X, y = table.X, table.y
    return replace(table, X=X.iloc[learn], y=y[learn], X_test=X.iloc[judge], y_test=y[judge])


def of_two_classes(table: PeerTable) -> PeerTable:
    """Its largest class against all others."""
    largest = int(np.bincount(table.y).argmax())
    y, y_test = ((labels == largest).astype(np.int64) for labels in (table.y, table.y_test))
    return replace(table, y=y, y_test=y_test)


def judged(table: PeerTable, seed: int, choice: str, rounds: int | str, crossed: bool) -> Judged:
    """Learn as always, with this choice undone."""
    started = time.process_time()
    with undone(choice):
        model = GALClassifier(table.organizations, random_state=seed, interactions=crossed, rounds=rounds)
        said = model.fit(table.X, table.y).predict_proba(table.X_test)
    cpu = time.process_time() - started
    two = table.n_classes == 2
    score = auc(table.y_test, said[:, 1]) if two else accuracy(table.y_test, said.argmax(axis=1))
    return Judged(score, log_loss(table.y_test, said), cpu)


def compare(
    table: PeerTable, choices: list[str], seeds: range, rows: int, rounds: Sequence[int | str], crossed: bool
) -> None:
    """Print one line per choice, and number of rounds beside the first."""
    today: Any = None
    for choice, many in [(one, rounds[0]) for one in choices] + [("today", more) for more in rounds[1:]]:
        found = [judged(divided(table, seed, rows), seed, choice, many, crossed) for seed in seeds]
        facts = np.array([(one.score, one.log_loss, one.cpu_seconds) for one in found])
        if today is None:
            today, (score, loss, cpu) = facts, facts.mean(axis=0)
            print(f"{table.name}, {table.split}: {choice} {score:.4f}, log loss {loss:.4f}, {cpu:.1f} CPU s")
            continue
        change = facts - today
        error = change.std(axis=0, ddof=1) / np.sqrt(len(seeds))
        said = [f"{mean:+.4f} ({by:.4f})" for mean, by in zip(change.mean(axis=0), error, strict=True)]
        named = choice if many == rounds[0] else f"{many} rounds"
        print(f"  {named}: score {said[0]}, log loss {said[1]}, CPU {change[:, 2].mean():+.1f} s", flush=True)


def _rounds(text: str) -> int | str:
    return text if text == "auto" else int(text)


def main() -> None:
    """Every set that was named, every way in which its columns are divided."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--seeds", type=int, default=4, help="at least 2")
    parser.add_argument("--rows", type=int, default=8000, help="rows to learn from, at most")
    parser.add_argument("--splits", type=int, default=3, help="of those that VertiBench draws")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--rounds", type=_rounds, nargs="*", default=["auto"], help="numbers, or auto")
    parser.add_argument("--two", action="store_true", help="the largest class against all others")
    parser.add_argument("--crossed", action="store_true", help="with interaction probes")
    parser.add_argument("--choices", nargs="*", default=list(UNDONE))
    given = parser.parse_args()
    for name in given.sets:
        for drawn in list(peer_tables(name, None, 0))[: given.splits]:
            table = of_two_classes(drawn) if given.two else drawn
            several = table.n_classes > 2
            compare(
                table,
                [one for one in given.choices if ("two classes" if several else "several") not in one],
                range(given.first, given.first + given.seeds),
                given.rows,
                given.rounds,
                given.crossed,
            )


if __name__ == "__main__":
    main()
