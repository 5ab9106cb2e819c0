"""A source that stays where it is gives the views, answers and refusals that the same rows in a file give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal.alignment import RowIds, secret_digest
from gal.errors import AlignmentError, GALError, InvalidInputError, RefusedError
from gal.models.parted import PartedView
from gal.node.config.configuration import read_configuration
from gal.node.config.requests import token_arrays
from gal.node.source import streamed_reading
from gal.node.store.row_index import forgotten_rows
from gal.node.store.views import load_view
from gal.node.worker.local_work import LocalWork
from gal.protocol import Message, decode, encode

pytest.importorskip("pyarrow.parquet")

N, TASK = 400, "a" * 32
SECRET = b"a secret that both of them know"


def frame(texts: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    made = pd.DataFrame(
        {"id": rng.permutation(N), "age": rng.normal(size=N), "year": np.arange(N) % 4 + 2000}
    )
    made.loc[3, "age"] = np.nan
    if texts:
        made["town"] = np.array(["Ulm", "Bonn", "Aachen", None], dtype=object)[rng.integers(4, size=N)]
        made["smoker"] = np.where(rng.integers(2, size=N) == 1, "true", "false")
    return made


def work(home: Path, source: str, rows: pd.DataFrame, data: str = "") -> LocalWork:
    """An organization with these rows in one Parquet file, or in a folder by year."""
    home.mkdir()
    if source == "file":
        rows.to_parquet(home / "rows.parquet", index=False)
    else:
        for year, part in rows.groupby("year"):
            (home / "lake" / f"year={year}").mkdir(parents=True)
            part.drop(columns="year").to_parquet(
                home / "lake" / f"year={year}" / "part.parquet", row_group_size=20
            )
        (home / "lake" / "_SUCCESS").touch()
    named = "rows.parquet" if source == "file" else "lake"
    kept = [name for name in rows if name not in {"id"}]
    (home / "secret").write_bytes(SECRET)
    (home / "node.toml").write_text(
        f'name = "lab"\n[data]\nsource = "{named}"\nrow_id = "id"\nfeatures = {kept}\n'
        f'secret_file = "secret"\n{data}[model]\nuse = "tabular"\n'
    )
    (home / "version").mkdir()
    return LocalWork(read_configuration(home))


def message(kind: str, ids: RowIds, method: str = "plain", **fields: Any) -> bytes:
    secret = SECRET if method == "hashed" else None
    own: dict[str, Any] = {
        "kind": ids.kind,
        "method": method,
        "secret": "" if secret is None else secret_digest(secret),
    }
    arrays: dict[str, Any] = dict(token_arrays(ids, method, secret))
    if kind == "begin":
        own |= {"terms": "sha256:" + "0" * 64, "organization": "lab", "n_outputs": 1, "rounds": 5, "seed": 3}
        arrays |= {"fit": np.ones(len(ids), dtype=np.uint8)}
    return bytes(encode(Message(kind, TASK, 1, kind, own | fields, arrays)))


def integers(*values: int) -> RowIds:
    return RowIds("integer", np.array(values, dtype=np.int64))


ASKED = integers(*range(300, 20, -1), 5000, 0, 7)


@pytest.mark.parametrize("method", ["plain", "hashed"])
@pytest.mark.parametrize("texts", [False, True], ids=["numbers", "texts"])
def test_a_lake_and_a_file_give_the_same_view(
    texts: bool, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_reading, "BATCH", 64)
    found = {}
    for source in ("file", "lake"):
        lab = work(tmp_path / source, source, frame(texts))
        folder = tmp_path / source / "version"
        facts, answer = lab.begin(message("begin", ASKED, method), folder, "clinic", own=False, keys=True)
        found[source] = facts, decode(answer).arrays["known"], load_view(folder / "view")
        assert (folder / "view").stat().st_mode & 0o077 == 0
        assert not list(folder.glob("*.part"))
    (in_file, known, view), (in_lake, same, streamed) = found["file"], found["lake"]
    assert in_lake == in_file
    assert in_lake["n_rows"] == len(ASKED) - 1
    np.testing.assert_array_equal(same, known)
    if texts:
        pd.testing.assert_frame_equal(
            streamed.astype({"town": object}), view.astype({"town": object}), check_exact=True
        )
        assert set(streamed["town"].cat.categories) == {"Aachen", "Bonn", "Ulm"}
    else:
        np.testing.assert_array_equal(streamed, view)


@pytest.mark.parametrize("texts", [False, True], ids=["numbers", "texts"])
def test_a_model_that_takes_parts_gets_them_from_either(
    texts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gal.node.worker.local_work.takes_parts", lambda _: True)
    monkeypatch.setattr("gal.node.source.data.PART_ROWS", 70)
    found = []
    for source in ("file", "lake"):
        folder = tmp_path / source / "version"
        lab = work(tmp_path / source, source, frame(texts))
        lab.begin(message("begin", ASKED), folder, "clinic", own=False)
        view = load_view(folder / "view")
        assert isinstance(view, PartedView)
        codes = np.vstack([one.part.read() for one in view.parts()])
        texts_of = [place for place, one in enumerate(view.features) if one.categories is not None]
        assert not (codes[:, texts_of] < 0).any(), "what is missing is NaN to a model, not a category"
        named = {
            one.name: np.array([*(one.categories or ()), None], dtype=object)[
                np.nan_to_num(column, nan=-1).astype(int)
            ]
            if one.categories is not None
            else column
            for one, column in zip(view.features, codes.T, strict=True)
        }
        found.append(pd.DataFrame(named))
        assert len(list(folder.glob("view*"))) == 1 + -(-(len(ASKED) - 1) // 70)
    pd.testing.assert_frame_equal(found[0], found[1])


def test_forgotten_rows_are_unknown(tmp_path: Path) -> None:
    lab = work(tmp_path / "lake", "lake", frame())
    forgotten_rows(tmp_path / "lake").add(["7", "0"])
    _, answer = lab.begin(message("begin", ASKED), tmp_path / "lake" / "version", "clinic", own=False)
    assert decode(answer).arrays["known"][-3:].tolist() == [0, 0, 0]
    asked = message("predict", integers(7, 8), rounds=[1], track="assisted")
    assert lab.own_rows.known_rows(decode(asked), "x", {})[1].tolist() == [-1, 0]


@pytest.mark.parametrize(
    ("change", "asked", "said"),
    [
        (lambda rows: rows, RowIds("text", np.array(["a", "b"], dtype=object)), "different types"),
        (lambda rows: pd.concat([rows, rows.assign(year=1999)]), ASKED, "one row for each id"),
        (lambda rows: rows, integers(*range(9000, 9100)), "rows"),
    ],
    ids=["kind", "twice", "unknown"],
)
def test_what_is_refused_leaves_nothing_behind(change: Any, asked: RowIds, said: str, tmp_path: Path) -> None:
    lab = work(tmp_path / "lake", "lake", change(frame()))
    with pytest.raises((RefusedError, AlignmentError), match=said) as error:
        lab.begin(message("begin", asked), tmp_path / "lake" / "version", "clinic", own=False)
    # what is wrong with own rows is not told to others
    assert isinstance(error.value, RefusedError) != ("one row for each" in said)
    assert not list((tmp_path / "lake" / "version").iterdir())


@pytest.mark.parametrize(
    ("prepare", "source", "said"),
    [
        (lambda home: None, "lake", "there is no folder .*lake"),
        (lambda home: (home / "lake").mkdir(), "lake", "no .parquet file in .*put data into it"),
        (lambda home: (home / "lake").write_text("x"), "lake", "is no folder and does not end in"),
        (lambda home: (home / "rows.csv").mkdir(), "rows.csv", "no .parquet file in"),
    ],
    ids=["absent", "empty", "file", "folder"],
)
def test_a_wrong_lake_says_what_is_wrong(prepare: Any, source: str, said: str, tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "node.toml").write_text(f'name = "lab"\n[data]\nsource = "{source}"\nrow_id = "id"\n')
    with pytest.raises(InvalidInputError, match=said):
        LocalWork(read_configuration(tmp_path)).own_rows.facts()


def test_broken_files_and_columns(tmp_path: Path) -> None:
    work(tmp_path / "lake", "lake", frame())
    home = tmp_path / "lake"
    text = (home / "node.toml").read_text()
    (home / "node.toml").write_text(text.replace("'town'", "'twon'"))
    with pytest.raises(GALError, match=r"no column 'twon'. Did you mean 'town'"):
        LocalWork(read_configuration(home)).own_rows.facts()
    (home / "node.toml").write_text(text)
    (home / "lake" / "year=2000" / "part.parquet").write_bytes(
        b"no Parquet at all, but long enough to look at"
    )
    with pytest.raises(InvalidInputError, match=r"cannot be read: .*Parquet.*Correct \[data\]"):
        LocalWork(read_configuration(home)).own_rows.facts()
