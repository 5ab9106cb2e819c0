"""The section [privacy] of node.toml: what it may say, what it means together,
and what gal doctor says of it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

import gal.node.runtime.node
from gal.errors import ConfigurationError, MissingExtraError
from gal.node.admin import doctor
from gal.node.admin.doctor import Finding
from gal.node.admin.init import init_node
from gal.node.admin.trial import try_model
from gal.node.config.configuration import NodeConfiguration, new_configuration_text, read_configuration
from gal.node.runtime.node import Node
from gal.node.store.views import load_view
from gal.privacy.accounting import Event
from gal.privacy.ledger import Budget, Charge, row_keys
from small_network import WorkerHere, quiet

NOISE = 'answer_noise = "laplace"\nanswer_clip = 3\nanswer_epsilon = 0.5\n'
GAUSSIAN = 'answer_noise = "gaussian"\nanswer_clip = 3.0\nanswer_epsilon = 1\nanswer_delta = 1e-6\n'


def read(home: Path, section: str) -> NodeConfiguration:
    (home / "node.toml").write_text(f'name = "lab"\n[privacy]\n{section}', encoding="utf-8")
    return read_configuration(home)


def test_nothing_is_limited_and_nothing_noised_by_default(tmp_path: Path) -> None:
    found = read(tmp_path, "").privacy
    assert (found.answer_noise, found.label_budget, found.answer_budget) == ("none", None, None)
    (tmp_path / "node.toml").write_text('name = "lab"')
    assert read_configuration(tmp_path).privacy == found


def test_budgets(tmp_path: Path) -> None:
    found = read(tmp_path, "label_epsilon = 2\nlabel_delta = 1e-6\n").privacy
    assert (found.label_budget, found.answer_budget) == (Budget(2.0, 1e-6), None)
    found = read(tmp_path, NOISE + "answer_budget_epsilon = 5.0").privacy
    assert (found.label_budget, found.answer_budget) == (None, Budget(5.0))
    assert (found.answer_clip, found.answer_epsilon, found.answer_delta) == (3.0, 0.5, 0.0)


def test_what_init_writes_holds_when_it_is_uncommented(tmp_path: Path) -> None:
    text = new_configuration_text("lab")
    section = text[text.index("# [privacy]") :].split("\n\n")[0]
    lines = [line.removeprefix("# ") for line in section.splitlines()[1:]]
    found = read(tmp_path, "\n".join(lines)).privacy
    assert found.model_fields_set == set(type(found).model_fields)
    assert found.answer_budget == Budget(20.0, 1e-5)


WRONG: dict[str, tuple[str, str]] = {
    "epsilon 0": ("label_epsilon = 0", "privacy.label_epsilon: should be greater than 0, got 0"),
    "no epsilon": ('label_epsilon = "2"', "privacy.label_epsilon: should be a valid number"),
    "infinite": ("label_epsilon = inf", "privacy.label_epsilon: should be a finite number"),
    "delta 1": ("label_epsilon = 1\nlabel_delta = 1", "privacy.label_delta: should be less than 1"),
    "a delta alone": ("label_delta = 1e-6", "privacy: label_delta needs label_epsilon"),
    "another noise": ('answer_noise = "uniform"', "privacy.answer_noise: should be 'none', "
                                                  "'laplace' or 'gaussian'"),
    "a key that is none": ("answer_epsilno = 1", "privacy.answer_epsilno: .* did you mean "
                                                 "answer_epsilon?"),
    "the wrong section": ("decimals = 3", r"privacy.decimals: .* belongs under \[policy\]"),
    "no bound": ('answer_noise = "laplace"\nanswer_epsilon = '
                 '1', 'privacy: answer_noise = "laplace" needs answer_clip'),
    "no cost": ('answer_noise = "laplace"\nanswer_clip = 1', 'privacy: answer_noise = "laplace" '
                                                             'needs answer_epsilon'),
    "a bound of 0": (NOISE.replace("clip = 3", "clip = 0"), "privacy.answer_clip: should be greater "
                                                            "than 0"),
    "a large epsilon": (NOISE.replace("0.5", "31"), "privacy.answer_epsilon: epsilon must be .* to "
                                                    "30"),
    "a tiny epsilon": (NOISE.replace("0.5", "9e-7"), "privacy.answer_epsilon: epsilon must be .* "
                                                     "from 1e-06"),
    "an epsilon below 0": (NOISE.replace("0.5", "-1"), "privacy.answer_epsilon: epsilon must be a "
                                                       "number above 0"),
    "Laplace with delta": (NOISE + "answer_delta = 1e-6", 'privacy: answer_noise = "laplace" has no '
                                                          'answer_delta'),
    "Gaussian without": (GAUSSIAN.replace("answer_delta = "
                                          "1e-6", ""), 'privacy: .*"gaussian" needs answer_delta'),
    "nor for the budget": (GAUSSIAN + "answer_budget_epsilon = "
                                      "9", "privacy: .*needs answer_budget_delta above 0"),
    "a budget for nothing": (NOISE + "answer_budget_epsilon = "
                                     "0.4", "privacy: .*nothing could ever be answered"),
    "noise that is off": ("answer_clip = 3", "privacy: answer_clip means nothing without "
                                             "answer_noise"),
    "a budget without noise": ("answer_budget_epsilon = 3", "privacy: answer_budget_epsilon means "
                                                            "nothing without"),
}  # fmt: skip


@pytest.mark.parametrize(("section", "said"), WRONG.values(), ids=WRONG.keys())
def test_every_error_names_file_and_key(section: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"^node.toml: {said}"):
        read(tmp_path, section)


# The node


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(gal.node.runtime.node, "Worker", WorkerHere)
    monkeypatch.setattr(doctor, "run_trial", tried_here)
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "lab"
    init_node(
        folder, "lab", source="rows.csv", row_id="id", label="y", bind="127.0.0.1:0", address="a.example:1"
    )
    (folder / "rows.csv").write_text(
        "id,age,y\n" + "".join(f"{row},{row % 7},{row % 2}\n" for row in range(30))
    )
    return folder


def tried_here(home: Path, view: Path, result: Path) -> int:
    """Models are tried in this process: a new one takes seconds to import."""
    found = try_model(read_configuration(home), load_view(view))
    result.write_text(json.dumps(asdict(found)))
    return 0


def add(home: Path, section: str) -> None:
    path = home / "node.toml"
    path.write_text(f"{path.read_text()}\n[privacy]\n{section}")


def test_a_nodes_ledger_is_there_when_it_is_needed_and_stays(home: Path) -> None:
    charge = Charge("t", "labels: y", "risk", ("clinic",), Event("randomised-response", 1.0))
    with Node(home, log=quiet(), dials=False) as node:
        assert not (home / "ledger.sqlite").exists()
        node.ledger.charge(charge, row_keys([1, 2]), None)
        assert node.ledger is node.ledger
    with Node(home, log=quiet(), dials=False) as node:
        assert node.ledger.spent("labels: y", 0.0) == 1.0
    assert not (home / "ledger.sqlite-wal").exists()  # it was closed


def test_a_node_does_not_start_without_what_its_noise_needs(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(home, NOISE)
    monkeypatch.setitem(sys.modules, "opendp", None)
    with pytest.raises(MissingExtraError, match=r"noise on answers needs the package 'opendp'"):
        Node(home, log=quiet(), dials=False).__enter__()


# gal doctor


def findings(home: Path) -> dict[str, Finding]:
    return {one.what: one for one in doctor.examine(home)}


def test_labels_without_a_budget_are_worth_a_hint(home: Path) -> None:
    found = findings(home)
    assert found["labels"].ok is None
    assert "every organization of a task can know them" in found["labels"].said
    assert "privacy.label_epsilon" in found["labels"].fix
    assert "privacy" not in found


def test_who_cannot_be_reached_needs_no_hint(home: Path) -> None:
    path = home / "node.toml"
    path.write_text(
        path.read_text()
        .replace("[listen]", "# [listen]")
        .replace("\nbind", "\n# bind")
        .replace("\naddress", "\n# address")
    )
    assert "labels" not in findings(home)


def test_what_noise_and_budgets_mean(home: Path) -> None:
    pytest.importorskip("opendp", reason="opendp is not installed: the extra privacy")
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: the extra privacy")
    add(home, NOISE + "answer_budget_epsilon = 5\nlabel_epsilon = 2\n")
    found = findings(home)
    assert (found["privacy"].ok, found["labels"].ok) == (None, True)
    assert "standard deviation of 17" in found["privacy"].said  # 2 * 3 / 0.5 * sqrt(2)
    assert "the budget allows 10 answers about a row" in found["privacy"].said
    assert "at most epsilon 2 may leave" in found["labels"].said


@pytest.mark.parametrize(("epsilon", "ok"), [(2.9, True), (2.7, None)])
def test_answers_that_are_mostly_noise_are_worth_a_note(home: Path, epsilon: float, ok: bool | None) -> None:
    """The standard deviation is 2 clip / epsilon sqrt(2): 3 at epsilon 2.83 for a clip of 3."""
    pytest.importorskip("opendp", reason="opendp is not installed: the extra privacy")
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: the extra privacy")
    add(home, NOISE.replace("0.5", str(epsilon)))
    found = findings(home)["privacy"]
    assert found.ok is ok
    assert ("Answers will be mostly noise" in found.said) is (ok is None)
    assert ("answer_clip" in found.fix) is (ok is None)


def test_noise_that_cannot_be_had_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(home, NOISE)
    monkeypatch.setitem(sys.modules, "opendp", None)
    found = findings(home)["privacy"]
    assert found.ok is False
    assert found.fix == "pip install 'gal-learn[privacy]'"
