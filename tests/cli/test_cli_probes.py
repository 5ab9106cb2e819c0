"""Interaction probes at the command line: who invites and who joins has to consent in node.toml."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

pytest.importorskip("duckdb")
pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from gal.cli.app import app
from gal.core.probes.kept_probes import PROBES_REVEAL
from gal.errors import GALError, RefusedError
from gal.node.config.invitations import FITTED_VALUES_REVEAL, RESIDUALS_REVEAL

PROBES = ("-o", "interactions=2", "-o", "validation_fraction=0.2")


def gal(*words: Any) -> str:
    """What a command prints, on one line; errors of ours come out as they are."""
    found = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "80"})
    if isinstance(found.exception, GALError):
        raise found.exception
    return " ".join(found.output.split())


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clinic with labels and a lab, who know each other."""
    monkeypatch.chdir(tmp_path)
    rows = pd.DataFrame(
        {"id": range(100), "x": range(100), "y": [0, 1] * 50, "ill": ["no", "no", "yes"] * 33 + ["no"]}
    )
    rows[["id", "x", "y"]].to_csv("clinic.csv", index=False)
    rows[["id", "x", "ill"]].to_csv("lab.csv", index=False)
    for name, more in {"clinic": ("--label", "y", "--listen", "127.0.0.1:7443"), "lab": ()}.items():
        gal("init", name, "--home", name, "--data", f"{name}.csv", "--row-id", "id", *more)
    gal("cards", "add", "clinic/clinic.card", "--home", "lab")
    gal("cards", "add", "lab/lab.card", "--home", "clinic")
    return tmp_path


def consent(home: Path) -> None:
    toml = home / "node.toml"
    toml.write_text(re.sub(r"(?m)^\[policy\]$", "[policy]\ninteractions = true", toml.read_text(), count=1))


def test_interaction_probes_need_the_consent_of_everybody_who_takes_part(homes: Path) -> None:
    assert PROBES_REVEAL not in gal("invite", "plain", "lab", "--home", "clinic")
    with pytest.raises(RefusedError, match=r"clinic, the label holder, .*policy\.interactions = false"):
        gal("invite", "risk", "lab", *PROBES, "--home", "clinic")
    assert not Path("risk.invitation").exists()
    consent(homes / "clinic")
    said = gal("invite", "risk", "lab", *PROBES, "--home", "clinic")
    assert f"{PROBES_REVEAL} Every organization that you invite has to consent" in said
    with pytest.raises(RefusedError, match=r"lab does not consent to them \(policy\.interactions = false"):
        gal("join", "risk.invitation", "--home", "lab", "--yes")
    consent(homes / "lab")
    assert PROBES_REVEAL in gal("join", "risk.invitation", "--home", "lab", "--yes")


def test_who_joins_sees_what_probes_would_reveal_of_its_own_columns(homes: Path) -> None:
    for home in ("clinic", "lab"):
        consent(homes / home)
    gal("invite", "risk", "lab", *PROBES, "--home", "clinic")
    said = gal("join", "risk.invitation", "--home", "lab", "--yes")
    assert "Measured on 100 of your rows with your model 'tabular'" in said
    assert re.search(r"(ill \(no\)|x \(above 49\.5\)) \d+%, from random targets \d+%; ", said)
    assert said.index("2 of 2 columns were tried") < said.index("Joined risk")
    facts = json.loads(
        CliRunner().invoke(app, ["join", "risk.invitation", "--home", "lab", "--yes", "--json"]).stdout
    )
    found = {one["column"]: one for one in facts["probes_reveal"]["columns"]}
    assert list(found) == ["ill", "x"], "the fewest values come first"
    assert found["x"]["followed"] > 0.9
    Path("lab.csv").unlink()
    unread = gal("join", "risk.invitation", "--home", "lab", "--yes")
    assert "What probes would reveal of your own columns was not measured: organization 'lab'" in unread
    gal("invite", "plain", "lab", "--home", "clinic")
    assert "probes would reveal" not in gal("join", "plain.invitation", "--home", "lab", "--yes")


def test_who_opens_and_joins_a_task_sees_what_it_reveals_of_columns(homes: Path) -> None:
    reveals = f"{RESIDUALS_REVEAL} {FITTED_VALUES_REVEAL}"
    assert reveals in gal("invite", "risk", "lab", "--home", "clinic")
    assert f"{reveals} Yours leave as they are" in gal("join", "risk.invitation", "--home", "lab", "--yes")
    for home in ("clinic", "lab"):
        assert reveals in gal("privacy", "--home", home)
    noise = ("--privacy", "randomised-response", "--epsilon", 1, "--classes", "0,1")
    noisy = (*noise, "-o", "columns_epsilon=10", "-o", "columns_delta=1e-6")
    for task, options, expected in (("label", noise, RESIDUALS_REVEAL), ("column", noisy, "column privacy")):
        assert expected in gal("invite", task, "lab", *options, "--home", "clinic")
        assert expected in gal("join", f"{task}.invitation", "--home", "lab", "--yes")
