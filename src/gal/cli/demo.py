"""The demo's data: 442 real diabetes patients, as three organizations would hold them."""

from __future__ import annotations

import pandas as pd
from rich.console import Console
from sklearn.datasets import load_diabetes

from gal.cli.evaluate import print_found, run
from gal.cli.options import AsJson

STORY = (
    "A [bold]clinic[/] wants to predict how a patient's diabetes will progress within a year. It knows age, "
    "sex and blood pressure. An [bold]insurer[/] knows body mass, a [bold]lab[/] knows six blood values of the "
    "same 442 patients. Nobody may show its columns to the others.\n\n"
    "So every round the clinic sends out what it still gets wrong; each of the three fits that with its own "
    "data and model, and sends back only the fitted values.\n"
)


def demo_table() -> tuple[pd.DataFrame, dict[str, list[str]], str]:
    """The table, who holds what, and the story for people."""
    table = load_diabetes(as_frame=True).frame.rename(columns={"target": "progression"})
    organizations = {
        "clinic": ["age", "sex", "bp"],
        "insurer": ["bmi"],
        "lab": ["s1", "s2", "s3", "s4", "s5", "s6"],
    }
    return table, organizations, STORY


def demo(as_json: AsJson = False) -> None:
    """See in a few seconds what assistance brings, on a real data set of 442 patients."""
    table, organizations, story = demo_table()
    out = Console()
    if not as_json:
        out.print(story)
    found = run(table, "progression", organizations, label_holder="clinic", quiet=as_json)
    print_found(found, as_json, out)
