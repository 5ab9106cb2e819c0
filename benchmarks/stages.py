"""Where the CPU seconds of one learning go, beside pooled boosting in the same run.

    OMP_NUM_THREADS=1 python benchmarks/stages.py Adult CreditDefault Letter Covertype

GAL with defaults, on the tables of ``gal bench peers``; they learn and predict.
Each stage has its own seconds, without those of stages inside it. Forest and network of the closing model
stand by what they are fitted for: to be judged, with the others' answers or the label holder's alone, or for
good, on all rows.

    OMP_NUM_THREADS=1 python benchmarks/stages.py Adult CreditDefault --warm 7

prints GAL beside pooled boosting only, without what is done once in a process: in turns, the median of so
many runs after a first one. With ``PYTHONPATH`` at the sources of another version it is that one's.

    OMP_NUM_THREADS=1 python benchmarks/stages.py Adult CreditDefault --crossing 3

prints instead what crossed residuals cost: CPU seconds of learning and megabytes of all assistants without
and with them, in turns, the median of so many runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np

from gal import GALClassifier
from gal.core import algorithm, steps
from gal.engine import drivers, organization, stacking
from gal.evaluate.metrics import accuracy, auc, log_loss
from gal.models.tabular import TableEncoder, tabular_model
from gal.models.tabular.known_table import KnownTable
from gal_bench.peers import methods
from gal_bench.peers.tables import SETS, PeerTable, peer_tables

PLACES: list[tuple[Any, str, str | Callable[..., str | None]]] = [
    (KnownTable, "codes", "encoding columns"),
    (TableEncoder, "fit", "encoding columns"),
    (tabular_model, "ridge", "local ridge"),
    (tabular_model, "fit_tree", "local trees"),
    (drivers, "fit_locally", lambda *a, **_: f"local fits, rest, {a[3].track}"),
    (organization, "_own_values", "fitted values of all rows"),
    (algorithm, "weighed", "weights and line search"),
    (algorithm, "line_along", "weights and line search"),
    (algorithm, "advance", "weights and line search"),
    (algorithm, "broadcast", "residuals"),
    (stacking.Stacking, "__call__", "closing, rest"),
    (stacking.Stacking, "_fitted", "closing forest"),
    (stacking, "_sharpness", "closing, sharpness"),
    (stacking, "_network", "closing network"),
    (stacking, "said", "closing forest asked"),
    (stacking.Stacking, "whole", "closing, last fit, rest"),
    (steps, "share_out", "contributions"),
]
"""Where time is taken, and what it is called."""


class Stages:
    """CPU seconds by stage; a stage inside another is not counted there."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._open: list[str] = []
        self._since = time.process_time()

    def _tick(self) -> None:
        now = time.process_time()
        stage = self._open[-1] if self._open else "rest"
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Until it ends, seconds are of this stage."""
        self._tick()
        self._open.append(name)
        self.calls[name] = self.calls.get(name, 0) + 1
        try:
            yield
        finally:
            self._tick()
            self._open.pop()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """All places take time."""
        with ExitStack() as stack:
            for place, name, stage in PLACES:
                stack.enter_context(patch.object(place, name, self._timed(getattr(place, name), stage)))
            yield

    def _timed(self, function: Callable[..., Any], stage: str | Callable[..., str | None]) -> Any:
        def timed(*given: Any, **named: Any) -> Any:
            with self.stage(self._inside(stage if isinstance(stage, str) else str(stage(*given, **named)))):
                return function(*given, **named)

        return timed

    def _inside(self, stage: str) -> str:
        """Closing models are called by what they are fitted for."""
        if not stage.startswith("closing") or stage.endswith(", rest"):
            return stage
        if "closing, last fit, rest" in self._open:
            return f"{stage}, all rows"
        return f"{stage}, judged" if "closing, rest" in self._open else f"{stage}, elsewhere"


def gal(table: PeerTable, seed: int) -> tuple[Any, Stages, float]:
    """What GAL says, and where its time went."""
    stages, started = Stages(), time.process_time()
    with stages.taken(), stages.stage("rest of learning"):
        model = GALClassifier(table.organizations, random_state=seed)
        model.fit(table.X, table.y)
    with stages.stage("prediction"):
        said = model.predict_proba(table.X_test)
    return said, stages, time.process_time() - started


def beside(table: PeerTable, seed: int) -> Mapping[str, tuple[Any, float]]:
    """What pooled boosting says, and its seconds."""
    found = {}
    for name, peer in {"XGBoost": methods.xgboost_pooled, "LightGBM": methods.lightgbm_pooled}.items():
        started = time.process_time()
        said, _ = peer(table, seed)
        found[name] = said, time.process_time() - started
    return found


def _judged(table: PeerTable, said: Any) -> str:
    two = table.n_classes == 2
    score = auc(table.y_test, said[:, 1]) if two else accuracy(table.y_test, said.argmax(axis=1))
    return f"{score:.4f}, log loss {log_loss(table.y_test, said):.4f}"


def show(table: PeerTable, seed: int, *, pooled: bool) -> None:
    """Print all stages of one table, the longest first."""
    peers = beside(table, seed) if pooled else {}
    said, stages, whole = gal(table, seed)
    print(f"{table.name}, {table.split}: GAL {whole:.2f} CPU s, {_judged(table, said)}")
    for name, (pooled_said, seconds) in peers.items():
        print(f"  {name} pooled {seconds:.2f} CPU s ({whole / seconds:.1f} x), {_judged(table, pooled_said)}")
    for stage, seconds in sorted(stages.seconds.items(), key=lambda one: -one[1]):
        print(f"    {seconds:6.2f}  {seconds / whole:4.0%}  {stage} ({stages.calls.get(stage, 1)})")
    print(flush=True)


def show_warm(table: PeerTable, seed: int, runs: int) -> None:
    """CPU seconds of GAL and of pooled boosting, in turns; the first run of each does not count."""
    peers: dict[str, Callable[[PeerTable, int], Any]] = {
        "GAL": methods.gal_not_crossed,
        "XGBoost": methods.xgboost_pooled,
        "LightGBM": methods.lightgbm_pooled,
    }
    taken: dict[str, list[float]] = {name: [] for name in peers}
    for _, (name, peer) in product(range(runs + 1), peers.items()):
        started = time.process_time()
        peer(table, seed)
        taken[name].append(time.process_time() - started)
    medians = {name: float(np.median(seconds[1:])) for name, seconds in taken.items()}
    said = [f"{name} {one:.3f} ({medians['GAL'] / one:.2f} x)" for name, one in medians.items()]
    print(f"{table.name}, {table.split}, warm, CPU s: {', '.join(said)}", flush=True)


def show_crossing(table: PeerTable, seed: int, runs: int) -> None:
    """What crossed residuals take beside all the rest."""
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    heard = False
    for _, (interactions, taken) in product(range(runs), found.items()):
        model, started = GALClassifier(table.organizations, random_state=seed), time.process_time()
        model.set_params(interactions=interactions).fit(table.X, table.y)
        traffic = model.traffic_
        taken.append((time.process_time() - started, (traffic.sent + traffic.received) / 1e6))
        heard = model.crossing_ is not None
    (without, less), (crossed, more) = (np.median(taken, axis=0) for taken in found.values())
    print(
        f"{table.name}, {table.split}: {without:.2f} CPU s, {less:.1f} MB without crossing; with it "
        f"{crossed - without:+.2f} CPU s, {more - less:+.1f} MB, {'followed' if heard else 'not followed'}",
        flush=True,
    )


def main() -> None:
    """Every set that was named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--splits", type=int, default=1, help="of those that VertiBench draws")
    parser.add_argument("--first", type=int, default=1, help="the first of them, from 0: alpha 0.1, 1, 100")
    parser.add_argument("--no-pooled", action="store_true", help="GAL only")
    parser.add_argument("--warm", type=int, default=0, help="GAL beside pooled boosting, of so many runs")
    parser.add_argument("--crossing", type=int, default=0, help="what crossing costs, of so many runs")
    given = parser.parse_args()
    for name in given.sets:
        tables = list(peer_tables(name, None, given.seed))
        tables = tables if len(tables) == 1 else tables[given.first : given.first + given.splits]
        for table in tables:
            if given.crossing:
                show_crossing(table, given.seed, given.crossing)
            elif given.warm:
                show_warm(table, given.seed, given.warm)
            else:
                show(table, given.seed, pooled=not given.no_pooled)


if __name__ == "__main__":
    main()
