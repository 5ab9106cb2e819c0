"""One table of mechanisms: one that is made up here, and put into it, is found
wherever mechanisms are named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from gal import GALClassifier
from gal.cli.app import app
from gal.errors import InvalidOptionError
from gal.evaluate.rehearsal import rehearse
from gal.node.agreement.invitations import PromisedPrivacy
from gal.node.holder.labels.label_privacy import LabelPrivacy
from gal.privacy import SeededNoise, statement
from gal.privacy.mechanisms.contract import EITHER, Mark, MechanismKind
from gal.privacy.mechanisms.labels import RandomisedResponse
from gal.privacy.registry import KINDS, NONE, mechanism_named, names, promised_names
from gal_bench.pictures import curves
from gal_bench.runs.mechanisms import named_needs
from gal_bench.specs import RowSpec

NAME = "weather-labels"


@dataclass(frozen=True)
class WeatherLabels(RandomisedResponse):
    """Randomised response under another name: what matters is that nothing else knows of it."""

    def describe(self) -> str:
        return "The weather decides which labels are told."


@pytest.fixture
def made_up() -> Iterator[MechanismKind]:
    kind = MechanismKind(
        name=NAME,
        make=WeatherLabels,
        words="made up",
        caption="the weather",
        mark=Mark("#123456", "*", "dashed"),
        needs=("epsilon", "classes"),
        promise="the weather changed some labels",
        strengths={"epsilon": (0.25,)},
    )
    KINDS[NAME] = kind
    yield kind
    del KINDS[NAME]


@pytest.fixture
def table(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"])
    frame["bought"] = np.where(frame["a"] + frame["b"] > rng.normal(size=60), "yes", "no")
    frame.to_csv(tmp_path / "table.csv", index=False)
    return str(tmp_path / "table.csv")


def gal(*words: str) -> Any:
    return CliRunner().invoke(app, [*words], env={"COLUMNS": "300", "TERM": "dumb"})


def test_every_mechanism_is_listed_once_under_its_own_name() -> None:
    assert names() == (NONE, *KINDS)
    assert all(name == kind.name for name, kind in KINDS.items())
    assert len({kind.make for kind in KINDS.values()}) == len(KINDS)


def test_marks_tell_mechanisms_apart_where_they_can_stand_in_one_picture() -> None:
    for labels in EITHER:
        marks = [(kind.mark.marker, kind.mark.filled) for kind in KINDS.values() if kind.suits(labels)]
        assert len(set(marks)) == len(marks)


def test_what_promises_nothing_is_not_for_tasks() -> None:
    assert set(names()) - set(promised_names()) == {"none", "paper-laplace", "paper-interval"}
    for name in promised_names():
        assert {"epsilon"} <= set(KINDS[name].needs)


def test_it_is_gone_where_nobody_registers_it() -> None:
    with pytest.raises(InvalidOptionError, match=NAME):
        mechanism_named(NAME, epsilon=1.0, classes=["no", "yes"])
    with pytest.raises(ValidationError):
        PromisedPrivacy(mechanism=NAME, epsilon=1.0)
    assert NAME not in gal("leakage", "--help").stdout


@pytest.mark.usefixtures("made_up")
class TestMadeUp:
    @pytest.mark.parametrize("command", ["leakage", "invite"])
    def test_among_the_choices_of_the_command_line(self, command: str) -> None:
        assert NAME in gal(command, "--help").stdout

    def test_in_the_terms_of_an_invitation(self) -> None:
        promised = LabelPrivacy(NAME, 1.0, classes=("no", "yes")).promised
        assert isinstance(promised, PromisedPrivacy)
        again = PromisedPrivacy.model_validate_json(promised.model_dump_json())
        assert f"{NAME} (epsilon 1, once" in again.sentence()
        assert "the weather changed some labels" in again.sentence()

    def test_in_a_rehearsal_by_name_and_in_a_comparison(
        self, table: str, weak_attackers: None, monkeypatch: Any
    ) -> None:
        common = ("leakage", table, "--target", "bought", "--rounds", "1", "--json")
        result = gal(*common, "--privacy", NAME, "--epsilon", "1")
        assert result.exit_code == 0, result.output
        (facts,) = json.loads(result.stdout)
        assert facts["name"] == f"{NAME} epsilon 1"
        assert facts["leak"]["mechanism"].startswith("The weather decides")
        assert "likelihood ratio" in {one["name"] for one in facts["leak"]["attacks"]}

        compared: list[str] = []

        def only_names(*_: Any, mechanisms: dict[str, Any], **__: Any) -> list[Any]:
            compared.extend(mechanisms)
            return []

        monkeypatch.setattr("gal.evaluate.rehearsal.rehearse_all", only_names)
        assert gal(*common, "--compare").exit_code == 0
        assert f"{NAME} epsilon 0.25" in compared

    def test_an_estimator_learns_with_it_and_says_what_it_promises(self, table: str) -> None:
        frame = pd.read_csv(table)
        privacy = mechanism_named(NAME, epsilon=2.0, classes=["no", "yes"], source=SeededNoise(0))
        parts: dict[str, Sequence[str]] = {"one": ["a"], "other": ["b", "c"]}
        model = GALClassifier(parts, privacy=privacy, rounds=2).fit(frame[["a", "b", "c"]], frame["bought"])
        assert set(model.predict(frame[["a", "b", "c"]])) <= {"no", "yes"}
        assert statement(privacy).words.startswith("The weather decides")
        found = rehearse(frame[["a", "b", "c"]], frame["bought"], parts, privacy=privacy, rounds=1)
        assert found.leak.cost is not None
        assert found.leak.cost.epsilon == 2.0

    def test_in_the_names_and_pictures_of_the_bench(self, made_up: MechanismKind) -> None:
        assert named_needs()[NAME] == ("epsilon",)
        assert RowSpec(order=1, label="x", privacy=NAME, epsilon=1.0).privacy == NAME
        with pytest.raises(ValidationError, match="needs epsilon"):
            RowSpec(order=1, label="x", privacy=NAME)
        caption, pen = curves()[NAME]
        assert (caption, pen.color, pen.marker) == ("the weather", made_up.mark.colour, "*")
