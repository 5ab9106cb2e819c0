"""Privacy as a label holder meets it on the command line: invite, join, learn, versions, predict."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("duckdb")
pytest.importorskip("opendp", reason="the extra privacy")

import gal.node.label_holder.labels.label_guard
import gal.node.runtime.node
from gal.cli.app import main
from gal.node.runtime.control import serving
from gal.privacy import SeededNoise

RESPONSE = ["--privacy", "randomised-response", "--epsilon", 1, "--classes", "no,yes"]
ROUNDS = ["--rounds", 2]


def run(*words: Any, code: int = 0) -> str:
    """What a command prints to the screen, or says where it fails; ``code`` is how it must end."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "argv", ["gal", *map(str, words)])
        patch.setenv("COLUMNS", "200")
        with redirect_stderr(io.StringIO()) as err:
            try:
                main()
                status: Any = 0
            except SystemExit as end:
                status = end.code
    assert int(status or 0) == code, (out.getvalue(), err.getvalue())
    return " ".join((out.getvalue() if code == 0 else err.getvalue()).split())


def facts(*words: Any) -> Any:
    """What a command prints for machines."""
    return json.loads(run(*words, "--json"))


class Foreseeable(SeededNoise):
    """Looks secure, so that a node takes it, and is the same in every run of these tests."""

    secure = True

    def __init__(self) -> None:
        super().__init__(0)


class Town:
    """A clinic with class labels and a budget for them, and a lab that helps;
    both run, here in this process.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clinic, self.lab = ["--home", root / "clinic"], ["--home", root / "lab"]

    def out(self, task: str) -> list[Any]:
        """Where a task's invitation goes."""
        return ["--out", self.root / f"{task}.invitation"]

    def open(self, task: str, *privacy: Any) -> Any:
        """Invite the lab to a task, and have it join."""
        found = facts("invite", task, "lab", *self.clinic, *ROUNDS, *privacy, *self.out(task))
        run("join", self.root / f"{task}.invitation", "--yes", *self.lab)
        return found


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "support"))
        small: Any = import_module("small_network")
        tables = small.numbers(60, organizations=("clinic", "lab"))
        tables["clinic"][small.LABEL] = np.where(tables["clinic"][small.LABEL] > 0, "yes", "no")
        root = tmp_path_factory.mktemp("town")
        network = small.Network(
            root, tables, more={"clinic": "[privacy]\nlabel_epsilon = 1.5\nlabel_delta = 1e-13\n"}
        )
        patch.setattr(gal.node.runtime.node, "Worker", small.WorkerHere)
        patch.setattr(gal.node.label_holder.labels.label_guard, "SystemNoise", Foreseeable)
        stack.callback(network.stop)
        network.start("lab")
        stack.enter_context(serving(root / "clinic", small.quiet()))
        yield Town(root)


def test_a_task_with_privacy_from_the_invitation_to_predictions(town: Town) -> None:
    found = town.open("risk", *RESPONSE)["privacy"]
    assert (found["mechanism"], found["epsilon"], found["delta"]) == ("randomised-response", 1.0, 0.0)
    assert (found["spent"], found["budget"], found["left"]) == (0.0, 1.5, 1.5)

    said = run("learn", "risk", *town.clinic)
    assert "Privacy: randomised-response, epsilon 1." in said
    assert "epsilon 1 at delta 1e-13; 0.5 of 1.5 left" in said
    assert "The private refit, which predicts, has" in said

    again = facts("learn", "risk", *town.clinic)
    assert again["privacy"]["spent"] == 1.0  # the same noisy labels: nothing more is told
    assert again["refitted"]
    assert "private_refit" not in again

    listed = facts("versions", "risk", *town.clinic)
    assert {one["privacy"]["mechanism"] for one in listed["versions"].values()} == {"randomised-response"}
    assert listed["privacy"]["left"] == 0.5
    said = run("versions", "risk", *town.clinic)
    assert "randomised-response, epsilon 1, refitted" in said
    assert "0.5 of 1.5 left" in said

    rows = town.root / "clinic" / "rows.csv"
    predicted = facts("predict", "risk", rows, *town.clinic)["rows"]
    assert {row["prediction"] for row in predicted} <= {"no", "yes"}

    town.open("more", *RESPONSE)
    said = run("learn", "more", *town.clinic, code=3)
    assert "the privacy budget is epsilon 1.5" in said
    assert "0.5 is left" in said
    assert facts("versions", "more", *town.clinic)["versions"] == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--privacy", "paper-laplace"], "there are: none"),
        (["--privacy", "randomised-response", "--epsilon", 1], "public set of all classes"),
        (
            ["--privacy", "randomised-response", "--epsilon", 1, "--classes", "no,maybe"],
            "none of the public classes",
        ),
        (["--privacy", "laplace-labels", "--epsilon", 1, "-o", "lower=0"], "public upper bound"),
        ([*RESPONSE, "-o", "columns_epsilon=1"], "needs both columns_epsilon"),
        ([*RESPONSE, "-o", "kind=regression"], "does not go with privacy"),
    ],
)
def test_what_cannot_be_promised_is_said_when_inviting(town: Town, words: list[Any], said: str) -> None:
    assert said in run("invite", "wrong", "lab", *town.clinic, *words, *town.out("wrong"), code=2)
    assert not (town.root / "wrong.invitation").exists()


def test_a_budget_wants_a_mechanism(town: Town) -> None:
    said = run("invite", "open", "lab", *town.clinic, *town.out("open"), code=3)
    assert "has no privacy mechanism" in said
    assert "label_epsilon" in said
