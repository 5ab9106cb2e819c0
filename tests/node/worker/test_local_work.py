"""What an organization computes, without a network: rows, rounds, restarts, private set intersections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal import Organization
from gal.alignment import RowIds
from gal.core.requests import FitRequest, PredictRequest, Terms
from gal.core.rows import Rows
from gal.errors import AlignmentError, LocalModelError, RefusedError
from gal.models import LinearModel
from gal.node.config.configuration import read_configuration
from gal.node.config.requests import token_arrays
from gal.node.worker.local_work import LocalWork
from gal.protocol import Message, decode, encode
from moving_models import Drifting

N, TASK = 40, "a" * 32
X = np.random.default_rng(0).normal(size=(N, 2))
LINEAR = 'use = "linear"'
MOVING = 'use = "moving_models:Drifting"\ntrusted = ["moving_models.Drifting"]'
SECRET = b"a secret that both of them know"


def work(home: Path, model: str = LINEAR, data: str = "", ids: Any = None) -> LocalWork:
    """A fresh process's worth of it."""
    (home / "node.toml").write_text(
        f'name = "lab"\n[data]\nsource = "rows.csv"\nrow_id = "id"\n{data}[model]\n{model}\n'
    )
    if not (home / "rows.csv").exists():
        table = pd.DataFrame({"id": np.arange(N) if ids is None else ids, "a": X[:, 0], "b": X[:, 1]})
        table.to_csv(home / "rows.csv", index=False)
    (home / "version").mkdir(exist_ok=True)
    return LocalWork(read_configuration(home))


def begin(ids: RowIds, method: str = "plain", secret: bytes | None = None, **arrays: Any) -> bytes:
    from gal.alignment import secret_digest

    fields = {
        "kind": ids.kind,
        "method": method,
        "secret": "" if secret is None else secret_digest(secret),
        "terms": "sha256:" + "0" * 64,
        "organization": "lab",
        "n_outputs": 1,
        "rounds": 5,
        "seed": 3,
    }
    roles = {"fit": np.ones(len(ids), dtype=np.uint8)} | arrays
    message = Message("begin", TASK, 1, "begin", fields, token_arrays(ids, method, secret) | roles)
    return bytes(encode(message))


def integers(*values: int) -> RowIds:
    return RowIds("integer", np.array(values or range(N), dtype=np.int64))


def fit(rows: str, residual: Any, round: int = 1) -> bytes:
    fields = {"rows": rows, "track": "assisted", "round": round, "part": None}
    arrays = {"residual": np.asarray(residual, dtype=np.float32)}
    return bytes(encode(Message("fit", TASK, 1, f"{round}.0", fields, arrays)))


# Rows


def test_a_source_that_changes_is_read_again(tmp_path: Path) -> None:
    lab = work(tmp_path)
    assert len(lab.own_rows.table().ids) == N
    assert lab.own_rows.table() is lab.own_rows.table()
    pd.DataFrame({"id": [1, 2], "a": [0, 1], "b": [1, 0]}).to_csv(tmp_path / "rows.csv", index=False)
    assert len(lab.own_rows.table().ids) == 2
    found = lab.own_rows.known_rows(decode(begin(integers(2, 1, 0))), "clinic")[1]
    assert found.tolist() == [1, 0, -1]


def test_a_version_keeps_its_view_when_the_source_changes(tmp_path: Path) -> None:
    lab = work(tmp_path)
    lab.begin(begin(integers()), tmp_path / "version", "clinic", own=False)
    pd.DataFrame({"id": [1, 2], "a": [0, 1], "b": [1, 0]}).to_csv(tmp_path / "rows.csv", index=False)
    again = work(tmp_path)  # also after a restart
    for one in (lab, again):
        np.testing.assert_array_equal(one.version(tmp_path / "version")[0].view, X)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (begin(RowIds("text", np.array(["a", "b"], dtype=object))), "integer"),
        (begin(integers(1, 2, 1)), "twice|more than once|2 times|duplicate|1"),
        (begin(integers(1, 2), fit=np.zeros(2, dtype=np.uint8)), "roles"),
    ],
    ids=["kind", "twice", "roles"],
)
def test_what_is_wrong_between_two_is_told_to_both(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(RefusedError, match=said) as error:
        work(tmp_path).begin(data, tmp_path / "version", "clinic", own=False)
    assert error.value.code == "alignment"
    assert not (tmp_path / "version" / "begun.arrow").exists()


def test_what_is_wrong_at_home_stays_there(tmp_path: Path) -> None:
    lab = work(tmp_path, ids=[5] * N)
    with pytest.raises(AlignmentError, match="5"):  # no RefusedError: its text is not for others
        lab.begin(begin(integers()), tmp_path / "version", "clinic", own=False)


def test_secrets_must_be_the_same(tmp_path: Path) -> None:
    (tmp_path / "shared").write_bytes(SECRET)
    (tmp_path / "shared").chmod(0o600)
    lab = work(tmp_path, data='secret_file = "shared"\n')
    _, answer = lab.begin(
        begin(integers(3, 99, *range(4, 30)), "hashed", SECRET), tmp_path / "version", "clinic", own=False
    )
    assert decode(answer).arrays["known"].tolist() == [1, 0, *([1] * 26)]
    with pytest.raises(RefusedError, match="different secrets"):
        lab.begin(
            begin(integers(3), "hashed", b"another secret of some length"),
            tmp_path / "version",
            "clinic",
            own=False,
        )


# Rounds


def rounds_of(
    lab: LocalWork, folder: Path, residuals: list[Any], previous: Any = None
) -> tuple[list[Any], Any]:
    """Fit these residuals one after the other; the answers, and the last model's file."""
    rows = decode((folder / "begun.arrow").read_bytes()).fields["rows"]
    found = []
    start = 1 if previous is None else int(previous[0].split("-")[1]) + 1
    for round, residual in enumerate(residuals, start):
        left, _ = lab.fit(fit(rows, residual, round), folder, f"answer-{round}", f"model-{round}", previous)
        found.append(decode((folder / f"answer-{round}").read_bytes()).arrays["fitted"])
        previous = f"model-{round}", left["model_digest"]
    return found, previous


RESIDUALS = [np.random.default_rng(seed).normal(size=(N, 1)).astype(np.float32) for seed in range(3)]
TERMS = Terms(Rows(N, np.arange(N), np.arange(N), np.arange(0)), 1, 5, 3)


@pytest.mark.parametrize("model", [LINEAR, MOVING])
def test_a_restart_changes_nothing(tmp_path: Path, model: str) -> None:
    """Every round in a process of its own gives the same numbers as all in one."""
    lab = work(tmp_path, model)
    folder = tmp_path / "version"
    lab.begin(begin(integers()), folder, "clinic", own=False)
    expected, _ = rounds_of(lab, folder, RESIDUALS)
    previous: Any = None
    for round, residual in enumerate(RESIDUALS):
        [answer], previous = rounds_of(work(tmp_path, model), folder, [residual], previous)
        np.testing.assert_array_equal(answer, expected[round], strict=True)
    asked = revisit(1, 2, 3), folder, stored(model, folder, previous)
    said = decode(work(tmp_path, model).revisit(*asked)[1])
    organization = Organization("lab", X, LinearModel() if model == LINEAR else Drifting())
    for round, residual in enumerate(RESIDUALS, 1):
        organization.fit(FitRequest(round, residual, ("lab",)), TERMS)
    now = organization.revisit(PredictRequest((1, 2, 3), ("lab",)), TERMS)
    np.testing.assert_array_equal(said.arrays["values"], now)


def revisit(*rounds: int) -> bytes:
    fields = {"rows": "sha256:" + "0" * 64, "track": "assisted", "rounds": list(rounds)}
    return bytes(encode(Message("revisit", TASK, 1, "9.0", fields)))


def stored(model: str, folder: Path, last: tuple[str, str]) -> list[tuple[str, str]]:
    from gal.protocol import digest

    if model == MOVING:
        return [last] * 3
    return [(name, digest((folder / name).read_bytes())) for name in ("model-1", "model-2", "model-3")]


def test_a_model_that_is_damaged_is_not_loaded(tmp_path: Path) -> None:
    lab = work(tmp_path, MOVING)
    folder = tmp_path / "version"
    lab.begin(begin(integers()), folder, "clinic", own=False)
    _, previous = rounds_of(lab, folder, RESIDUALS[:1])
    (folder / "model-1").write_bytes(b"something else")
    with pytest.raises(LocalModelError, match="model-1 is missing or damaged"):
        rounds_of(work(tmp_path, MOVING), folder, RESIDUALS[1:2], previous)


def test_models_that_were_forgotten_are_nowhere_in_memory(tmp_path: Path) -> None:
    lab = work(tmp_path)
    folder = tmp_path / "version"
    lab.begin(begin(integers()), folder, "clinic", own=False)
    _, previous = rounds_of(lab, folder, RESIDUALS)
    models = stored(LINEAR, folder, previous)
    for _ in range(2):
        lab.revisit(revisit(1, 2, 3), folder, models)  # the second time from memory
    (folder / "model-2").unlink()
    lab.revisit(revisit(1, 2, 3), folder, models)
    lab.forget(b"")
    with pytest.raises(LocalModelError, match="model-2 is missing or damaged"):
        lab.revisit(revisit(1, 2, 3), folder, models)


def test_a_class_that_is_not_trusted_is_not_loaded(tmp_path: Path) -> None:
    lab = work(tmp_path, MOVING)
    folder = tmp_path / "version"
    lab.begin(begin(integers()), folder, "clinic", own=False)
    _, previous = rounds_of(lab, folder, RESIDUALS[:1])
    with pytest.raises(Exception, match="Drifting"):
        rounds_of(work(tmp_path, 'use = "moving_models:Drifting"'), folder, RESIDUALS[1:2], previous)
