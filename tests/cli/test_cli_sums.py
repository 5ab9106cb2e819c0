"""Tasks that learn from sums, as people meet them: what is agreed, and whose keys it takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from gal.cli.app import app
from gal.errors import GALError
from gal.node.admin.init import init_node
from gal.transport import CardFolder, card_of, load_identity
from ports import free_port

OTHERS = ("insurer", "lab", "shop")


def gal(*words: object, answer: str | None = None) -> Result:
    """A command that ends well."""
    result = CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1"}).invoke(app, [*map(str, words)], input=answer)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    """A clinic with labels and three others; only the clinic has the others' cards yet."""
    rng = np.random.default_rng(0)
    port = free_port()
    for name in ("clinic", *OTHERS):
        home = tmp_path / name
        home.mkdir()
        table = pd.DataFrame({"id": np.arange(120), "x": rng.normal(size=120)})
        if name == "clinic":
            table["label"] = rng.normal(size=120)
        table.to_csv(home / "rows.csv", index=False)
        own = {"label": "label", "bind": f"127.0.0.1:{port}"} if name == "clinic" else {}
        init_node(home, name, source="rows.csv", row_id="id", **own)
    for name in OTHERS:
        introduce(tmp_path, name, "clinic", f"127.0.0.1:{port}")
        introduce(tmp_path, "clinic", name)
    return tmp_path


def introduce(root: Path, one: str, other: str, address: str | None = None) -> None:
    """One organization gets the card of another."""
    CardFolder(root / one / "cards").add(card_of(load_identity(root / other, other), address))


def test_everybody_sees_what_is_agreed_and_joins_with_the_cards_of_all(homes: Path) -> None:
    path = homes / "risk.invitation"
    words = [
        "invite",
        "risk",
        *OTHERS,
        "--secure-aggregation",
        "sums",
        "--home",
        homes / "clinic",
        "--out",
        path,
    ]
    said = gal(*words).output
    assert "you receive the sum of all replies, and no single one" in said
    assert "Stacking, interaction probes, contributions of single organizations" in said
    with pytest.raises(GALError, match=r"insurer \(sha256:.*, shop \(sha256:.*of whom no card is here"):
        gal("join", path, "--yes", "--home", homes / "lab")
    introduce(homes, "lab", "insurer")
    with pytest.raises(GALError, match=r"those of shop \(sha256:"):
        gal("join", path, "--yes", "--home", homes / "lab")
    assert "No tasks yet" in gal("status", "--home", homes / "lab").output
    introduce(homes, "lab", "shop")
    said = gal("join", path, "--home", homes / "lab", answer="y\n").output
    assert "Secure aggregation. The label holder gets the sum of the values of all 3 organizations" in said
    for name in OTHERS:
        assert f"{name} {load_identity(homes / name, name).fingerprint}" in said.replace("\n", " ")
    assert "secure aggregation" in gal("status", "--home", homes / "lab").output
    assert "secure aggregation" in gal("status", "--home", homes / "clinic").output


def test_noisy_labels_and_sums_are_both_among_the_terms(homes: Path) -> None:
    path = homes / "risk.invitation"
    noisy = ["--privacy", "laplace-labels", "--epsilon", 1, "-o", "lower=-9", "-o", "upper=9"]
    words = [
        "invite",
        "risk",
        *OTHERS,
        "--secure-aggregation",
        "sums",
        "--home",
        homes / "clinic",
        "--out",
        path,
    ]
    said = gal(*words, *noisy).output
    assert "Laplace noise on labels between the public bounds -9 and 9 with epsilon 1" in said
    assert "you receive the sum of all replies, and no single one" in said
    for name in ("insurer", "shop"):
        introduce(homes, "lab", name)
    said = " ".join(gal("join", path, "--yes", "--home", homes / "lab").output.split())
    assert "the label holder protects its labels with laplace-labels (epsilon 1, once" in said
    assert "Secure aggregation. The label holder gets the sum of the values of all 3 organizations" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            [*OTHERS[:2], "--secure-aggregation", "sums"],
            "needs at least 3 organizations beside the label holder",
        ),
        ([*OTHERS, "--secure-aggregation", "sums", "-o", "drop_outs=1"], "needs at least 4 organizations"),
        ([*OTHERS, "--secure-aggregation", "plus"], "--secure-aggregation must be none or sums"),
        ([*OTHERS, "-o", "drop_outs=1"], "drop_outs need sums"),
        ([*OTHERS, "--secure-aggregation", "sums", "--align", "psi"], "get the same rows"),
    ],
)
def test_what_sums_cannot_have_is_said_when_inviting(homes: Path, words: list[object], why: str) -> None:
    with pytest.raises(GALError, match=why):
        gal("invite", "risk", *words, "--home", homes / "clinic", "--out", homes / "x")
    assert not (homes / "x").exists()


def test_members_of_a_sum_do_not_change(homes: Path) -> None:
    words = ["invite", "risk", *OTHERS, "--secure-aggregation", "sums", "--home", homes / "clinic"]
    gal(*words, "--out", homes / "first")
    gal("invite", "risk", "lab", "--home", homes / "clinic", "--out", homes / "again")
    first, same = ((homes / name).read_text().split('"signature"')[0] for name in ("first", "again"))
    assert first == same, "the same terms"
    (homes / "bank").mkdir()
    init_node(homes / "bank", "bank")
    introduce(homes, "clinic", "bank")
    with pytest.raises(GALError, match="two sums that differ in bank would reveal its fitted values"):
        gal("invite", "risk", "bank", "--home", homes / "clinic", "--out", homes / "other")
