"""Which pieces of the learner pay: what each brings on rows that were not learned from, and what it costs.

    GAL_DATA=... OMP_NUM_THREADS=1 python benchmarks/pieces.py run --results FILE [--tables NAME ...]
        [--pieces NAME ...] [--splits N] [--rows N]
    python benchmarks/pieces.py show --results FILE

*run*: every piece is switched, by a public option where there is one, else by replacing an internal function
for the run, on every table where it may act: the same split and seed with it and without it. Splits are drawn
with numbers that no default was chosen with. Each run is one line of JSON as soon as it is done; what the
file has is not run again, so use another file for other sources.

*show*: by piece and table the mean of what it brings over the splits, in log loss (classes) or R2 (numbers),
positive where the piece helps, its standard error, and its CPU seconds in a fit; then one line by piece: on
how many tables it helps or harms by more than two standard errors, and how many lines it is made of. Of the
pieces that are off by default (marked +) it is what having them brings. With eight splits about one table in
twelve is beyond two standard errors by chance, and splits of one real table share rows.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss, r2_score

from gal import GALClassifier, GALRegressor, Organization
from gal.assembling import grouped
from gal.learner.labels import read_labels
from gal.learner.options import Options
from gal.learner.task_making import make_task

sys.path.append(str(Path(__file__).parents[1] / "tests/support"))  # whose adversaries attack here, too

from adversaries import ATTACKS, Member, drive, forecast
from piece_parts.switches import PIECES, Piece, lines_of
from piece_parts.tables import FIRST_SPLIT, TABLES, Source, Table

DEFAULT = "default"
ERRORS = 2.0
"""Standard errors beyond which a mean counts."""


@dataclass(frozen=True)
class Job:
    """One learning: a table, a split, and the piece that is switched; None: nothing is."""

    table: str
    split: int
    piece: Piece | None
    base: tuple[tuple[str, Any], ...] = ()
    """Options of both runs that are compared."""

    @property
    def run(self) -> str:
        """What its line is found by."""
        if self.piece is not None:
            return self.piece.name
        return " ".join([DEFAULT, *(f"{name}={value}" for name, value in self.base)])

    @property
    def key(self) -> tuple[str, int, str]:
        """Of its line."""
        return self.table, self.split, self.run


def jobs(tables: Sequence[str], pieces: Sequence[str], splits: int | None) -> list[Job]:
    """All, table by table; a run that several pieces are compared with is there once."""
    found: dict[tuple[str, int, str], Job] = {}
    for table in tables:
        source = TABLES[table]
        measured = [PIECES[name] for name in pieces if PIECES[name].measured_on(source)]
        for split in range(source.splits if splits is None else splits):
            for piece in measured:
                base = tuple(piece.base.items())
                for one in (Job(table, split, None, base), Job(table, split, piece, base)):
                    found.setdefault(one.key, one)
    return list(found.values())


# --- one learning


def cpu_seconds() -> float:
    """Of this process, until now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measured(job: Job, table: Table) -> dict[str, Any]:
    """What the learning gives on rows that were not learned from: a loss, or 1 - R2, and CPU seconds."""
    source, piece = TABLES[job.table], job.piece
    options = dict(job.base) | ({} if piece is None else dict(piece.options))
    learn = _attacked if source.attack else _learned
    try:
        if piece is None:
            found = learn(table, source, options, job.split)
        else:
            with piece.switched():
                found = learn(table, source, options, job.split)
    except (AttributeError, ModuleNotFoundError) as gone:  # from patching what is not there any more
        found = {"failed": f"{type(gone).__name__}: {gone}"}
    return {"table": job.table, "split": job.split, "run": job.run, **found}


def _learned(table: Table, source: Source, options: Mapping[str, Any], seed: int) -> dict[str, Any]:
    estimator = GALRegressor if source.kind == "numbers" else GALClassifier
    before = cpu_seconds()
    model = estimator(table.organizations, random_state=seed, **grouped(options)).fit(table.X, table.y)
    cpu = cpu_seconds() - before
    if source.kind == "numbers":
        loss = 1 - r2_score(table.y_test, model.predict(table.X_test))
    else:
        loss = log_loss(table.y_test, model.predict_proba(table.X_test), labels=model.classes_)
    ensemble = model.ensemble_
    return {"loss": float(loss), "cpu": cpu, "rounds": len(ensemble.coefficients), "track": ensemble.track}


def _attacked(table: Table, source: Source, options: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The same where the last organization is hostile."""
    views = {name: table.X[columns].to_numpy(float) for name, columns in table.organizations.items()}
    names = list(views)
    attack = ATTACKS[source.attack](np.random.default_rng(seed))[0]
    members = {
        name: Member(Organization(name, view), attack if name == names[-1] else None)
        for name, view in views.items()
    }
    chosen, before = Options(**options), cpu_seconds()
    labels = read_labels(table.y, "classification", chosen)
    task = make_task(labels, names, chosen, label_holder=names[0], seed=seed)
    ensemble = drive(task, members)
    cpu = cpu_seconds() - before
    test = {name: table.X_test[columns].to_numpy(float) for name, columns in table.organizations.items()}
    output = forecast(ensemble, members, test, screens=True)
    loss = float(log_loss(table.y_test, labels.loss.inverse_link(output), labels=labels.classes))
    return {"loss": loss, "cpu": cpu, "rounds": len(ensemble.coefficients), "track": ensemble.track}


def run(todo: Sequence[Job], path: Path | None, rows: int | None) -> list[dict[str, Any]]:
    """Do what the file does not have yet; all that there is then."""
    lines = read(path)
    done = {(one["table"], one["split"], one["run"]) for one in lines}
    table: Table | None = None
    last: tuple[str, int] | None = None
    for job in todo:
        if job.key in done:
            continue
        if table is None or last != (job.table, job.split):
            table, last = TABLES[job.table].draw(FIRST_SPLIT + job.split), (job.table, job.split)
            if rows is not None:
                table = replace(table, X=table.X[:rows], y=table.y[:rows])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            line = measured(job, table)
        lines.append(line)
        if path is not None:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    return lines


# --- what it says


def read(path: Path | None) -> list[dict[str, Any]]:
    """All runs that are done; none where there is no file."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@dataclass(frozen=True)
class Effect:
    """What a piece brings on one table."""

    piece: Piece
    table: str
    splits: int
    level: float
    """Loss of the default."""
    mean: float
    error: float
    on: float
    """CPU seconds of a fit with the piece."""
    off: float

    @property
    def verdict(self) -> int:
        """1: it helps, -1: it harms, 0: neither beyond chance."""
        return int(np.sign(self.mean)) if abs(self.mean) > ERRORS * self.error else 0


def effects(lines: Sequence[Mapping[str, Any]]) -> Iterator[Effect]:
    """Of all pieces on all tables with at least two splits."""
    runs = {(one["table"], one["split"], one["run"]): one for one in lines if "loss" in one}
    for piece in PIECES.values():
        usual = Job("", 0, None, tuple(piece.base.items())).run
        for table, source in TABLES.items():
            pairs = [
                (runs[table, split, usual], runs[table, split, piece.name])
                for split in range(source.splits)
                if (table, split, usual) in runs and (table, split, piece.name) in runs
            ]
            if len(pairs) < 2:
                continue
            given, switched = (
                np.array([[one[key] for key in ("loss", "cpu")] for one in side])
                for side in zip(*pairs, strict=True)
            )
            gains = (switched - given)[:, 0] * (-1 if piece.added else 1)
            costs = [given[:, 1].mean(), switched[:, 1].mean()]
            yield Effect(
                piece,
                table,
                len(pairs),
                float(given[:, 0].mean()),
                float(gains.mean()),
                float(gains.std(ddof=1) / np.sqrt(len(pairs))),
                *map(float, reversed(costs) if piece.added else costs),
            )


def summary(piece: Piece, found: Sequence[Effect]) -> str:
    """One row of the last table."""
    honest = [one for one in found if not TABLES[one.table].attack]
    attacked = [one for one in found if TABLES[one.table].attack]
    share = sum(one.on - one.off for one in honest) / max(sum(one.on for one in honest), 1e-9)
    lines = lines_of(piece)
    cells = [
        f"{'+ ' if piece.added else ''}{piece.name}",
        _counted(honest),
        _counted([one for one in honest if TABLES[one.table].real]),
        _best(honest, 1),
        _best(honest, -1),
        _counted(attacked),
        f"{100 * share:+.0f} %",
        "" if lines is None else str(lines),
    ]
    return f"| {' | '.join(cells)} |"


def _counted(found: Sequence[Effect]) -> str:
    verdicts = [one.verdict for one in found]
    return f"{verdicts.count(1)} / {verdicts.count(-1)} of {len(found)}" if found else ""


def _best(found: Sequence[Effect], sign: int) -> str:
    """The largest gain, or harm, beyond chance."""
    beyond = [one for one in found if one.verdict == sign]
    if not beyond:
        return ""
    most = max(beyond, key=lambda one: abs(one.mean))
    return f"{most.mean:+.4f} ({most.table})"


def show(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print what runs say."""
    found = list(effects(lines))
    print("| piece | table | default | brings | error | | CPU s with | without | splits |")
    print("|---|---|---|---|---|---|---|---|---|")
    for one in found:
        mark = {1: "helps", -1: "harms", 0: ""}[one.verdict]
        print(
            f"| {one.piece.name} | {one.table} | {one.level:.4f} | {one.mean:+.4f} | {one.error:.4f} | "
            f"{mark} | {one.on:.2f} | {one.off:.2f} | {one.splits} |"
        )
    heads = ("piece", "helps / harms", "of real ones", "most it helps", "most it harms", "under attack")
    print(f"\n| {' | '.join([*heads, 'CPU', 'lines'])} |")
    print("|---|---|---|---|---|---|---|---|")
    for piece in PIECES.values():
        of_piece = [one for one in found if one.piece is piece]
        if of_piece:
            print(summary(piece, of_piece))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("--results", type=Path, help="where runs are kept, and taken from")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES), metavar="TABLE")
    parser.add_argument("--pieces", nargs="+", choices=PIECES, default=list(PIECES), metavar="PIECE")
    parser.add_argument("--splits", type=int, help="of each table; 8, or 4 of the largest")
    parser.add_argument("--rows", type=int, help="at most, to see that it runs")
    given = parser.parse_args()
    todo = jobs(given.tables, given.pieces, given.splits) if given.what == "run" else []
    show(run(todo, given.results, given.rows))


if __name__ == "__main__":
    main()
