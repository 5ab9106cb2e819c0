"""Do the guarantees hold against the attacks of the leak meter, and what do they
cost beside the paper's mechanism?

    GAL_DATA=... python benchmarks/privacy.py [canaries | paper | stack | alone | columns | answers | curve
    | sums | meter] [--seeds 20]
    [--sets Wine ...] [--quick] [--json] [--model default] [--rows 3000] [--organizations 4]

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

*stack*: two organizations (or --organizations), local models by --model: log loss on rows that nobody
learned from, of the label holder alone, with assistance, and under randomised response at epsilon 0.5, 1 and
2; the private stack, and the refit of in-sample values that came before it (fitted="in-sample").

*alone*: is the private stack ever worse than alone? On many random splits of several tables, two
organizations (or --organizations), by --model: what was lost on rows that nobody learned from, alone minus
stack, paired, with its standard error; and the same for alone with another seed, which says what chance does.
Log loss for classes; for numbers the share of the variance that is not explained. --tables names files of
one's own instead of --sets; --secrecy sums has the stack learn from sums (--organizations 4 or more).

*columns*: R2 with which columns are rebuilt from residuals, by an organization, and from answers, by the
label holder, where 50 rows are known; on Diabetes or other numbers (--sets), by local model, rounds and
mechanism, without a cross-validation and with one. Beside each, in brackets, what the attacker's own columns
tell without any message.

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
import time
from typing import Any

from joblib import Parallel

from gal.errors import MissingDataError
from gal_bench.data.datasets import DATASETS
from privacy_parts.columns import judge_answers, judge_columns, judge_curve, judge_sums
from privacy_parts.labels import (
    JUDGED,
    PAPER_SETS,
    beside_the_paper,
    judge_canaries,
    print_canaries,
    print_paper,
)
from privacy_parts.meter import judge_meter
from privacy_parts.stacks import judge_alone, judge_stack
from privacy_parts.tables import MADE_UP, MODELS

PARTS = ("canaries", "paper")
LATER = ("stack", "alone", "columns", "answers", "curve", "sums", "meter")


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


def arguments() -> argparse.Namespace:
    """What was asked for."""
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
        "--model", choices=["default", "ridge", "boosting"], default="default", help="of stack and alone"
    )
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=[*MODELS], help="of curve, columns and meter"
    )
    parser.add_argument("--labels", nargs="+", default=["numbers", "classes"], help="of curve")
    parser.add_argument(
        "--rows", type=int, default=10**9, help="to learn from at most, of stack, alone and columns"
    )
    parser.add_argument("--organizations", type=int, default=2, help="of stack and alone")
    parser.add_argument(
        "--tables",
        nargs="+",
        metavar="FILE.csv:COLUMN",
        help="of alone and columns: tables of your own",
    )
    parser.add_argument("--secrecy", choices=["none", "sums"], default="none", help="of the stack in alone")
    parser.add_argument(
        "--cross-validated", action="store_true", help="of columns: only few rounds, and those with parts"
    )
    parser.add_argument(
        "--first-seed", type=int, help="of stack, alone and columns: others draw other splits"
    )
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
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
