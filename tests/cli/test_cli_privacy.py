"""``gal privacy``: who could learn what, for people and for machines, whether or not the node runs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from typer.testing import CliRunner

from gal.cli.app import app
from gal.cli.privacy import _lines
from gal.core.probes.kept_probes import PROBES_REVEAL
from gal.node.admin.init import init_node
from gal.node.store.state import Answer, State, TaskRecord
from gal.node.store.stored_versions import AssistedVersion, LearnedVersion
from gal.privacy.accounting import Event
from gal.privacy.accounting import spent as composed
from gal.privacy.ledger import Charge, Ledger, row_keys
from small_terms import small_terms

ROWS = row_keys(range(100))
RESPONSE = Event("randomised-response", 1.0)
LAPLACE = Event("laplace", 2.0)
LOUD = "every organization of this task can know every training label"


LEARNED = LearnedVersion(status="finished", n_rows=9, n_without_label=0, started="", privacy={})
SIZES: dict[str, Any] = {"n_rows": 9, "n_fit": 9, "fewest": 9, "n_outputs": 1, "rounds": 1}
ASSISTED = AssistedVersion(status="finished", request="", rows="", organization="clinic", **SIZES)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A label holder who also assists; nothing was sent yet."""
    folder = tmp_path / "clinic"
    init_node(folder, "clinic", source="rows.csv", row_id="id", label="outcome")
    return folder


def set_privacy(home: Path, section: str) -> None:
    path = home / "node.toml"
    path.write_text(f"{path.read_text()}\n[privacy]\n{section}\n")


def add_task(home: Path, name: str, *, version: bool = True, own: bool = True, **facts: Any) -> str:
    """A task on record, with a version; its id."""
    task = f"{crc32(name.encode()):032x}"
    role: Any = "label holder" if own else "organization"
    state = State(home)
    terms = small_terms(task, name, privacy=facts.pop("privacy", "none"))
    record = TaskRecord(task, name, role, "clinic" if own else "shop", terms)
    state.add_task(record, dict.fromkeys(("lab", "ward"), "invited") if own else None)
    if version:
        state.put_version(task, 1, LEARNED if own else replace(ASSISTED, **facts))
    if not own:
        state.put_answer(task, 1, Answer("assisted", 1, -1, "sha256:0", "answer", "sha256:0"), moving=False)
    state.close()
    return task


def charge(
    home: Path, task: str, event: Event, *peers: str, subject: str = "labels: outcome", n: int = 100
) -> None:
    key = f"{crc32(task.encode()):032x}/version 1"
    with Ledger(home / "ledger.sqlite") as ledger:
        made = Charge(key, subject, task, peers, event)
        ledger.charge(made, ROWS[:n], None, again=subject == "answers")


def said(home: Path, *words: str) -> str:
    result = CliRunner().invoke(app, ["privacy", "--home", str(home), *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def facts(home: Path, *words: str) -> Any:
    def no_constant(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    return json.loads(said(home, "--json", *words), parse_constant=no_constant)


def test_a_task_with_a_guarantee_in_plain_words(home: Path) -> None:
    add_task(home, "risk")
    add_task(home, "new", version=False)
    charge(home, "risk", RESPONSE, "lab", "ward")
    text = said(home)
    assert "new: nothing was sent yet." in text
    assert "Your labels (column outcome)" in text
    assert "risk: randomized response, epsilon 1; received by lab, ward" in text
    assert "Each organization by itself: lab epsilon 1; ward epsilon 1." in text
    assert "together, if they collude: epsilon 1." in text
    assert f"at most {1 / (1 + math.exp(-1)):.1%} of cases" in text
    assert "There is no budget" in text
    assert LOUD not in text


def test_interaction_probes_are_shown_as_far_as_a_node_knows_them(home: Path) -> None:
    assert facts(home)["probes"] == []
    assert PROBES_REVEAL not in said(home).replace("\n", " ")
    signs = [{"of": "lab", "to": "shop", "probes": 2}, {"of": "shop", "to": "lab", "probes": 1}]
    sent = {"task": "risk", "version": 1, "most": 14, "kept": signs}
    given = {"task": "cost", "version": 2, "label_holder": "bank", "replies": 7}
    none = {"task": "new", "version": 1, "most": 4, "kept": []}
    text = "\n".join(_lines({**facts(home), "probes": [sent, given, none]}))
    assert PROBES_REVEAL in text
    assert "each organization received at most 14 probes" in text
    assert "the model keeps: lab to shop in 2, shop to lab in 1." in text
    assert "signs of 7 replies of yours" in text
    assert "Only bank knows which" in text
    assert "the model keeps: none." in text


def test_tasks_on_the_same_labels_add_up_and_peers_collude(home: Path) -> None:
    set_privacy(home, "label_epsilon = 4")
    add_task(home, "risk")
    add_task(home, "cost")
    charge(home, "risk", RESPONSE, "lab", "ward")
    charge(home, "cost", LAPLACE, "ward", n=10)
    [labels] = facts(home)["labels"]
    assert (labels["column"], labels["spent"], labels["left"], labels["delta"]) == ("outcome", 1.5, 2.5, 0.0)
    assert labels["peers"] == {"lab": 1.0, "ward": 1.5}
    assert [(one["task"], one["epsilon"]) for one in labels["tasks"]] == [("risk", 1.0), ("cost", 0.5)]
    assert "Budget for one label: epsilon 4; left: 2.5." in said(home)


def test_a_task_without_privacy_is_loud(home: Path) -> None:
    add_task(home, "risk")
    charge(home, "risk", Event("none", 0.0), "lab")
    text = said(home)
    assert f"risk: WITHOUT PRIVACY: {LOUD}. received by lab" in text
    assert "if they collude: no bound." in text
    assert "They can know any label for certain." in text
    found = facts(home)["labels"][0]
    assert (found["spent"], found["tasks"][0]["mechanisms"]) == (None, ["none"])


def test_gaussian_noise_is_told_at_the_delta_that_was_promised(home: Path) -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: the extra privacy")
    promised = {"mechanism": "gaussian-labels", "epsilon": 1.0, "delta": 1e-5}
    add_task(home, "risk", privacy=promised)
    charge(home, "risk", Event("gaussian", 4.0), "lab")
    assert facts(home)["labels"][0]["delta"] == 1e-5
    add_task(home, "risk", privacy="none")
    assert facts(home)["labels"][0]["delta"] == 1e-6
    assert ", delta 1e-06; received by lab" in said(home)


def test_a_budget_without_delta_has_nothing_left_for_gaussian_noise(home: Path) -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: the extra privacy")
    set_privacy(home, "label_epsilon = 4")
    add_task(home, "cost")
    charge(home, "cost", Event("gaussian", 2.0), "ward")
    assert "Budget for one label: epsilon 4; left: 0." in said(home)
    assert facts(home)["labels"][0]["delta"] == 1e-6


def test_what_was_forgotten_was_still_sent(home: Path) -> None:
    task = add_task(home, "risk")
    charge(home, "risk", RESPONSE, "lab")
    state = State(home)
    state.forget(task)
    state.close()
    assert facts(home)["labels"][0]["spent"] == 1.0
    assert "risk: randomized response" in said(home, "risk")


# Answers


NOISE = 'answer_noise = "laplace"\nanswer_clip = 3\nanswer_epsilon = 0.5\nanswer_budget_epsilon = 4'


def test_answers_by_label_holder(home: Path) -> None:
    set_privacy(home, NOISE)
    add_task(home, "sales", own=False, keys="sha256:0")
    for _ in range(3):
        charge(home, "sales", LAPLACE, "shop", subject="answers")
    charge(home, "stock", LAPLACE, "bank", subject="answers", n=5)
    text = said(home)
    assert "Laplace noise on replies cut at +-3: epsilon 0.5 for each reply" in text
    assert "What a row has taught the model" in text
    assert "sales: Laplace noise, epsilon 1.5; received by shop" in text
    assert "Each label holder by itself: bank epsilon 0.5; shop epsilon 1.5." in text
    assert "if they collude: epsilon 2. Replies without noise are not counted." in text
    assert "Budget for one row: epsilon 4; left: 2." in text
    assert "replies without noise to" not in text
    assert "leave without noise" not in text
    found = facts(home)["answers"]
    assert (found["spent"], found["left"], found["plain"]) == (2.0, 2.0, [])


def test_answers_without_noise_are_named(home: Path) -> None:
    add_task(home, "sales", own=False)
    text = said(home)
    assert "Replies leave without noise (privacy.answer_noise in node.toml)" in text
    assert "sales: replies without noise to shop" in text


def test_columns_through_residuals_have_an_account_of_their_own(home: Path) -> None:
    assert "through the residuals of your tasks" not in said(home)
    set_privacy(home, "column_epsilon = 20\ncolumn_delta = 1e-6")
    add_task(home, "risk")
    charge(home, "risk", RESPONSE, "lab")
    noise = Event("gaussian", 3.0, count=9)
    charge(home, "risk", noise, "lab", "ward", subject="columns through residuals")
    found, cost = facts(home), composed([noise], 1e-6)
    assert (found["labels"][0]["spent"], found["labels"][0]["peers"]) == (1.0, {"lab": 1.0})
    assert found["columns"]["spent"] == pytest.approx(cost)
    assert found["columns"]["left"] == pytest.approx(20 - cost)
    text = said(home)
    assert f"risk: Gaussian noise, epsilon {cost:.4g}, delta 1e-06; received by lab, ward" in text
    assert "Tasks without column noise are not counted" in text
    assert f"Budget for one row's replies: epsilon 20 at delta 1e-06; left: {20 - cost:.4g}." in text
