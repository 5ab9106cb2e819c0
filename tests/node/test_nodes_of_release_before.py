"""This release learns and predicts with nodes of the one before, each in processes of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("grpc")

from gal.node.admin.membership import join, read_terms
from patience import LONGEST
from real_nodes import HOLDER, TASK, Network, text_of

RELEASE_BEFORE = "16bcd7c"
"""0.1.0, the last state that speaks protocol 1 alone."""

OPTIONS = {"cross_validation": 0, "validation_fraction": 0.0, "patience": None, "weights": "exact"}
"""Under which both releases compute the same: the default weights were others then."""
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the release before, out of the history."""
    made = subprocess.run(["git", "archive", RELEASE_BEFORE, "src/gal"], cwd=ROOT, capture_output=True)
    if made.returncode:
        pytest.skip(f"the history here does not reach back to {RELEASE_BEFORE}")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


@pytest.fixture
def old(sources: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Runs a command of the release before; what still runs at the end is ended."""
    running: list[subprocess.Popen[bytes]] = []

    def run(home: Path, *words: str) -> subprocess.Popen[bytes]:
        command = "import gal; assert 'before' in gal.__file__; from gal.cli import main; main()"
        with open(home / f"{words[0]}.log", "wb") as said:
            running.append(
                subprocess.Popen(
                    [sys.executable, "-c", command, *words, "--home", str(home)],
                    env=os.environ | {"PYTHONPATH": str(sources)},
                    stdout=said,
                    stderr=said,
                )
            )
        return running[-1]

    yield run
    for one in running:  # not asked to end: how the release before ends is not looked at here
        one.kill()
        one.wait(LONGEST)


@pytest.mark.slow
def test_an_organization_of_the_release_before_takes_part(
    old: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    with Network(tmp_path / "net", options=OPTIONS) as network:
        forget_state(network, "lab")
        invitation = str(network.root / f"{TASK}.invitation")
        assert old(network.home("lab"), "join", invitation, "--yes").wait(LONGEST) == 0
        old(network.home("lab"), "serve")
        network.serve("clinic", "hospital")
        network.learn()
        expected, output = network.expected()
        assert text_of(network.ensemble()) == text_of(expected)
        said = network.predictions()
        assert said["degraded"] == 0
        assert [row["prediction"] for row in said["rows"]] == output.tolist()
        spoke = [line for line in network.running["clinic"].said().splitlines() if "connected" in line]
        assert any("lab" in line and "protocol=1" in line for line in spoke), spoke
        assert any("hospital" in line and "protocol=2" in line for line in spoke), spoke


@pytest.mark.slow
def test_a_label_holder_of_the_release_before_is_served(
    old: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    with Network(tmp_path / "net", options=OPTIONS) as network:
        invited_by_old(network, old)
        network.serve("lab", "hospital")
        assert ended_by_itself(old, network.home("clinic"), "learn", TASK, "--deadline", f"{LONGEST:g}") == 0
        expected, output = network.expected()
        rows, out = str(network.root / "clinic.csv"), tmp_path / "out.csv"
        # The data of the lab are others now: it does not say so, since an older label holder would refuse it.
        shift_column(network.root / "lab.csv")
        words = ["predict", TASK, rows, "--join", f"{LONGEST:g}", "--out", str(out)]
        assert ended_by_itself(old, network.home("clinic"), *words) == 0
        said = pd.read_csv(out)
        assert not said["degraded"].any(), (network.home("clinic") / "predict.log").read_text("utf-8")
        assert len(said) == len(output)
        # Last: this release brings the files of the one before into its own form when it opens them. Sums of
        # the one before were made in another order: the last bits differ.
        learned = network.ensemble()
        assert learned.train_loss == pytest.approx(expected.train_loss, rel=1e-9)
        for mine, same in zip(learned.coefficients, expected.coefficients, strict=True):
            assert mine == pytest.approx(same, rel=1e-9)


def ended_by_itself(old: Callable[..., subprocess.Popen[bytes]], home: Path, *words: str) -> int:
    """The exit status of a command that listens. A label holder of the release before can crash in gRPC when
    somebody dials (grpc/grpc#36693, which this release avoids): then she tries again.
    """
    for _ in range(10):
        status = old(home, *words).wait(LONGEST)
        if status >= 0:
            return status
        if words[0] == "learn" and "--resume" not in words:
            words = (*words, "--resume")
    return status


def forget_state(network: Network, *names: str) -> None:
    """Their folders are as before a task was joined or opened: state has another form in each release."""
    for name in names:
        for path in network.home(name).glob("state.sqlite*"):
            path.unlink()


def invited_by_old(network: Network, old: Callable[..., subprocess.Popen[bytes]]) -> None:
    """The label holder's task is opened by the release before, and joined with this one."""
    forget_state(network, *network.names)
    path = network.root / "old.invitation"
    options = [f"-o{name}={json.dumps(value)}" for name, value in OPTIONS.items()]
    words = ["--kind", "regression", "--rounds", str(network.rounds), "--out", str(path), *options]
    invited = old(network.home(HOLDER), "invite", TASK, *network.organizations, *words)
    assert invited.wait(LONGEST) == 0
    for name in network.organizations:
        join(network.home(name), *read_terms(network.home(name), path))


def shift_column(path: Path) -> None:
    """Every value of the column a of this file becomes that of the next row."""
    table = pd.read_csv(path)
    table["a"] = table["a"].to_numpy()[[*range(1, len(table)), 0]]
    table.to_csv(path, index=False)
