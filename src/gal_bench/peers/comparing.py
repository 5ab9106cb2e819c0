"""Running the peers, and keeping what came of each in ``peers.csv``: an interrupted comparison goes on."""

from __future__ import annotations

import csv
import inspect
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np

from gal.errors import GALError, MissingDataError
from gal.evaluate.metrics import accuracy, auc, log_loss
from gal_bench.peers import methods
from gal_bench.peers.fed_tree import fedtree_vertical
from gal_bench.peers.methods import Said
from gal_bench.peers.split_network import splitnn
from gal_bench.peers.tables import PeerTable, peer_tables
from gal_bench.peers.vertical_xgboost import xgboost_vertical

Peer = Callable[[PeerTable, int], Said]

PEERS: Mapping[str, Peer] = {
    "GAL alone": methods.gal_alone,
    "XGBoost alone": methods.xgboost_alone,
    "GAL, not crossed": methods.gal_not_crossed,
    "GAL": methods.gal_default,
    "XGBoost vertical": xgboost_vertical,
    "FedTree vertical": fedtree_vertical,
    "SplitNN": splitnn,
    "XGBoost pooled": methods.xgboost_pooled,
    "LightGBM pooled": methods.lightgbm_pooled,
    "boosting pooled": methods.boosting_pooled,
    "forest pooled": methods.forest_pooled,
}
"""Alone has the label holder's columns, pooled has all in one place; the others have them divided."""


@dataclass(frozen=True)
class PeerResult:
    """One peer on one table; scores are of rows that nobody learned from."""

    set: str
    split: str
    seed: int
    peer: str
    auc: float | None
    """For two classes; None for more."""
    accuracy: float
    log_loss: float
    seconds: float
    cpu_seconds: float
    """Of this process and those that it started."""
    megabytes: float
    """Between organizations, while learning."""
    lines: int
    """Of the function that runs it, without its signature and docstring."""

    @property
    def score(self) -> float:
        """AUC for two classes, accuracy for more."""
        return self.accuracy if self.auc is None else self.auc


def compare_peers(
    sets: Sequence[str],
    folder: Path,
    data_dir: Path | None,
    *,
    seeds: Sequence[int] = (0,),
    say: Callable[[str], None],
    peers: Mapping[str, Peer] = PEERS,
) -> tuple[list[PeerResult], dict[str, str]]:
    """Run what ``peers.csv`` in this folder lacks; all results, and why sets or peers were left out."""
    done, skipped = read_peers(folder / "peers.csv"), dict[str, str]()
    for name in sets:
        for seed in seeds:
            try:
                for table in peer_tables(name, data_dir, seed):
                    for result in _missing(table, seed, done, skipped, peers, say):
                        done.append(result)
                        write_peers(done, folder / "peers.csv")
            except MissingDataError as error:
                skipped[name] = str(error)
    return done, skipped


def _missing(
    table: PeerTable,
    seed: int,
    done: Sequence[PeerResult],
    skipped: dict[str, str],
    peers: Mapping[str, Peer],
    say: Callable[[str], None],
) -> Iterator[PeerResult]:
    known = {(one.set, one.split, one.seed, one.peer) for one in done}
    for name, peer in peers.items():
        if (table.name, table.split, seed, name) in known or name in skipped:
            continue
        same = [one for one in done if (one.set, one.seed, one.peer) == (table.name, seed, name)]
        if name.endswith("pooled") and same:  # whoever holds which columns, together they are the same
            yield replace(same[0], split=table.split)
            continue
        say(f"{table.name}, {table.split}: {name}")
        try:
            yield measured(name, peer, table, seed)
        except ImportError as error:
            skipped[name] = f"{error}: pip install 'gal-learn[bench]'"
        except (GALError, EOFError) as error:
            why = str(error) or "its processes ended without a word; what they printed says why"
            skipped[f"{name} on {table.name}, {table.split}"] = why


def measured(name: str, peer: Peer, table: PeerTable, seed: int) -> PeerResult:
    """Learn, predict, and score."""
    started, cpu = time.perf_counter(), _cpu()
    said, moved = peer(table, seed)
    seconds, cpu = time.perf_counter() - started, _cpu() - cpu
    two = table.n_classes == 2
    return PeerResult(
        table.name,
        table.split,
        seed,
        name,
        auc(table.y_test, said[:, 1]) if two else None,
        accuracy(table.y_test, np.asarray(said).argmax(axis=1)),
        log_loss(table.y_test, said),
        seconds,
        cpu,
        moved / 1e6,
        lines_of(peer),
    )


def lines_of(peer: Callable[..., object]) -> int:
    """Lines of a function's body and of what it calls beside it, without docstrings and blank lines."""
    source = inspect.getsource(peer)
    body = source.split(":\n", 1)[1].replace(peer.__doc__ or "\0", "")
    own = sum(1 for line in body.splitlines() if line.strip() and not line.strip().startswith('"""'))
    beside = vars(sys.modules[peer.__module__]).items()
    helpers = [one for name, one in beside if name.startswith("_") and inspect.isfunction(one)]
    return own + sum(lines_of(one) for one in helpers if re.search(rf"\b{one.__name__}\b", body))


def _cpu() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def read_peers(path: Path) -> list[PeerResult]:
    """What was kept; nothing where there is no such file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [_result(row) for row in csv.DictReader(file)]


def _result(row: Mapping[str, str]) -> PeerResult:
    kept: dict[str, object] = dict(row)
    for name in ("accuracy", "log_loss", "seconds", "cpu_seconds", "megabytes"):
        kept[name] = float(row[name])
    kept |= {"seed": int(row["seed"]), "lines": int(row["lines"])}
    kept["auc"] = float(row["auc"]) if row["auc"] else None
    return PeerResult(**kept)  # type: ignore[arg-type]


def write_peers(results: Sequence[PeerResult], path: Path) -> None:
    """All results, rounded as the page shows them or finer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [one.name for one in fields(PeerResult)], lineterminator="\n")
        writer.writeheader()
        for one in results:
            facts = {name: _rounded(value) for name, value in asdict(one).items()}
            writer.writerow(facts)


def _rounded(value: object) -> object:
    return "" if value is None else round(value, 5) if isinstance(value, float) else value
