"""What the attacks did, as CSV and Markdown: every number is a run's."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from gal_bench.adversaries.attacked_tasks import DEFENCES
from gal_bench.adversaries.running import LATER, NOBODY, STEALING, AttackFigures
from gal_bench.adversaries.stealing import ASKINGS

WITHIN = 2.0
"""Percent that a harmed result may be behind the one without the adversary."""


def attacks_csv(lines: Sequence[AttackFigures]) -> str:
    """One line per set, local model, attack and column: mean, and every seed."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["data set", "local model", "attack", "metric", "column", "seeds", "mean", "by seed"])
    for line in lines:
        for column, values in line.figures.items():
            by_seed = " ".join(f"{one:.6g}" for one in values)
            head = [line.dataset, line.model, line.attack, line.metric, column]
            writer.writerow([*head, len(values), f"{line.mean(column):.6g}", by_seed])
    return file.getvalue()


def write_adversaries(lines: Sequence[AttackFigures], folder: Path) -> list[Path]:
    """The two files of the table; where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for ending, text in {"csv": attacks_csv(lines), "md": attacks_markdown(lines)}.items():
        path = folder / f"adversaries.{ending}"
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def attacks_markdown(lines: Sequence[AttackFigures]) -> str:
    """The page's tables."""
    how = (
        f"Each cell: the mean over {_seeds(lines)} with defences off / default / validation rows. Accuracy "
        "in percent (↑) or mean absolute deviation (↓) of test rows; 4 organizations, 5 rounds."
    )
    parts = ["# Adversaries among the organizations", _findings(lines), how]
    for model in dict.fromkeys(line.model for line in lines):
        mine = [line for line in lines if line.model == model and line.attack != STEALING]
        parts.append(f"### Local models: {model}\n\n{_table(mine)}")
    parts.append(f"### Triggered rows\n\n{_triggered(lines)}")
    parts.append(f"### Stealing\n\n{_stealing(lines)}")
    return "\n\n".join(parts) + "\n"


def _seeds(lines: Sequence[AttackFigures]) -> str:
    """How many seeds there are, by set where they are not the same of all."""
    by_set = {line.dataset: len(next(iter(line.figures.values()))) for line in lines}
    usual = max(by_set.values())
    fewer = ", ".join(f"{name}: {n}" for name, n in by_set.items() if n < usual)
    return f"{usual} seeds" + (f" ({fewer})" if fewer else "")


def _findings(lines: Sequence[AttackFigures]) -> str:
    attacks = [line for line in lines if line.attack not in {NOBODY, STEALING}]
    kinds = {
        "in learning": [line for line in attacks if line.attack not in LATER],
        "in prediction": [line for line in attacks if line.attack in LATER and line.attack != "backdoor"],
    }
    said = []
    for kind, some in kinds.items():
        for defence in DEFENCES:
            good = sum(as_good_as_alone(line, defence) for line in some)
            near = sum(within(line, defence) for line in some)
            strictly = sum(line.harm(defence, "without")[0] <= WITHIN for line in some)
            said.append(
                f"- Attacks {kind}, defences *{defence}*: in {good} of {len(some)} cells at least as good as "
                f"alone beyond noise, in {strictly} within {WITHIN:g} % of the result without the adversary "
                f"(in {near} within that or twice the standard error)."
            )
    return "\n".join(said)


def as_good_as_alone(line: AttackFigures, defence: str) -> bool:
    """Not worse than the label holder alone by more than twice the standard error."""
    worse, error = line.harm(defence, "alone")
    return worse <= max(2 * error, 1e-9)


def within(line: AttackFigures, defence: str) -> bool:
    """Not further behind the result without the adversary than is allowed, or than noise explains."""
    worse, error = line.harm(defence, "without")
    return worse <= max(WITHIN, 2 * error)


def _table(lines: Sequence[AttackFigures]) -> str:
    sets = list(dict.fromkeys(line.dataset for line in lines))
    by_place = {(line.attack, line.dataset): line for line in lines}
    arrows = {one: "↓" if by_place[NOBODY, one].metric == "mad" else "↑" for one in sets}
    rows = [["", *(f"{one} {arrows[one]}" for one in sets)]]
    for beside in ("alone", "without"):
        words = "alone" if beside == "alone" else "without the last organization"
        rows.append([words, *(_cell(by_place[NOBODY, one], f" {beside}") for one in sets)])
    for attack in dict.fromkeys(line.attack for line in lines):
        words = "all, nobody hostile" if attack == NOBODY else attack
        rows.append([words, *(_cell(by_place[attack, one]) for one in sets)])
    return _grid(rows)


def _cell(line: AttackFigures, beside: str = "") -> str:
    """Off, default, validation rows."""
    return " / ".join(_number(line, f"{defence}{beside}") for defence in DEFENCES)


def _number(line: AttackFigures, column: str) -> str:
    mean = line.mean(column)
    if line.metric in {"accuracy", "share"}:
        return f"{100 * mean:.1f}"
    return f"{mean:.1e}" if mean >= 1e5 else f"{mean:.0f}" if mean >= 1000 else f"{mean:.3g}"


def _triggered(lines: Sequence[AttackFigures]) -> str:
    rows = [["set, local models", "without the trigger", "with it"]]
    for line in lines:
        if line.attack == "backdoor":
            clean, hit = _cell(line), _cell(line, " triggered")
            rows.append([f"{line.dataset}, {line.model}", clean, hit])
    return _grid(rows)


def _stealing(lines: Sequence[AttackFigures]) -> str:
    rows = [["set, local models", *ASKINGS]]
    for line in lines:
        if line.attack == STEALING:
            rows.append([f"{line.dataset}, {line.model}", *(f"{_number(line, one)} %" for one in ASKINGS)])
    return _grid(rows)


def _grid(rows: Iterable[Sequence[str]]) -> str:
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)
