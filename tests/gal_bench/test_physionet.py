"""Stays of PhysioNet 2012: what an hour holds, what is believed, and that nothing leaks into a view."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gal.models.sequences import Sequences
from gal_bench.data import physionet
from gal_bench.data.physionet import OUTCOMES, SEQUENCES, STAYS, load_physionet, split_rows
from gal_bench.data.sources import Source, ViewSet

N = 30
RECORDS = np.arange(132_001, 132_001 + N)
DIED = np.arange(N) % 3 == 0
BODY = list(SEQUENCES["body"])
HR = BODY.index("HR")

Texts = dict[int, list[str]]
Make = Callable[..., Path]


def made_up_stays() -> Texts:
    """Thirty stays with a heart rate and a pH for some hours each."""
    rng = np.random.default_rng(0)
    stays = {}
    for i, record in enumerate(RECORDS.tolist()):
        lines = [f"00:00,RecordID,{record}", f"00:00,Age,{40 + i}", "00:00,Gender,1", "00:00,Height,170"]
        lines += [f"00:00,ICUType,{i % 4 + 1}", f"00:00,Weight,{60 + i}"]
        for hour in range(0, 10 + i, 2):
            lines += [
                f"{hour:02d}:15,HR,{rng.integers(60, 120)}",
                f"{hour:02d}:20,pH,{rng.uniform(7.2, 7.5):.2f}",
            ]
        stays[record] = lines
    return stays


def outcomes(*, days: list[int] | None = None, score: int = 5) -> str:
    rows = zip(RECORDS, days or [7] * N, DIED, strict=True)
    lines = [f"{record},{score},{score},{long},{score},{int(died)}" for record, long, died in rows]
    return "\n".join(["RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death", *lines]) + "\n"


def packed(stays: Texts) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for record, lines in stays.items():
            content = "\n".join(["Time,Parameter,Value", *lines, ""]).encode()
            info = tarfile.TarInfo(f"set-a/{record}.txt")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Writes a data folder and makes its files the known ones."""

    def folder(stays: Texts, labels: str | None = None) -> Path:
        said = outcomes() if labels is None else labels
        texts = {str(record): "\n".join(["Time,Parameter,Value", *lines]) for record, lines in stays.items()}
        sums = {
            STAYS: physionet.stays_checksum(texts),
            OUTCOMES: hashlib.sha256(said.encode()).hexdigest(),
        }
        monkeypatch.setitem(physionet.SOURCES, physionet.NAME, Source(physionet.NAME, sums, "somewhere"))
        (tmp_path / "physionet2012").mkdir(exist_ok=True)
        (tmp_path / STAYS).write_bytes(packed(stays))
        (tmp_path / OUTCOMES).write_text(said)
        return tmp_path

    return folder


def arrays(views: Any) -> list[NDArray[Any]]:
    return [part for view in views for part in ((view.values, view.lengths) if is_series(view) else (view,))]


def is_series(view: Any) -> bool:
    return isinstance(view, Sequences)


def same(some: Any, others: Any) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(arrays(some), arrays(others), strict=True))


def everything(views: ViewSet) -> list[Any]:
    return [*views.train.values(), *views.test.values(), views.whole_train, views.whole_test]


def training(views: ViewSet) -> list[Any]:
    return [*views.train.values(), views.whole_train]


def test_a_fifth_of_each_class_is_for_the_test() -> None:
    labels = (np.arange(500) % 10 == 0).astype(np.int64)
    train, test = split_rows(labels, 0, classes=True)
    assert sorted([*train, *test]) == list(range(500))
    assert (len(test), labels[test].sum()) == (100, 10)
    assert split_rows(labels, 0, classes=True)[1].tolist() == test.tolist()
    assert split_rows(labels, 1, classes=True)[1].tolist() != test.tolist()


class TestViews:
    def test_four_organizations(self, make: Make) -> None:
        views = load_physionet("mortality", make(made_up_stays()))
        assert list(views.train) == ["laboratory", "demographics", "body", "treatment"]
        assert views.label_holder == "laboratory"
        assert views.metric == "auc"
        assert [view.shape[1:] for view in views.train.values()] == [(48, 44), (11,), (48, 26), (48, 4)]
        assert {part.dtype for part in arrays(views.test.values())} == {np.dtype("f4"), np.dtype("i8")}
        assert views.whole_test.shape == (6, 48, 44 + 26 + 4 + 11)
        assert (len(views.y_train), len(views.y_test), views.y_test.sum()) == (24, 6, 2)

    def test_values_flags_and_ends(self, make: Make) -> None:
        stays = made_up_stays()
        train, _ = split_rows(DIED.astype(np.int64), 0, classes=True)
        stays[int(RECORDS[train[0]])] = ["00:00,Age,50", "02:10,HR,80", "02:50,HR,90", "05:00,pH,7.4"]
        views = load_physionet("mortality", make(stays))
        body = views.train["body"][[0]]
        assert body.lengths.tolist() == [6]
        rate, measured = body.values[0, :, HR], body.values[0, :, len(BODY) + HR]
        assert np.flatnonzero(measured).tolist() == [2]
        assert rate[:2].tolist() == [0, 0]
        assert rate[2] != 0
        assert (rate[2:6] == rate[2]).all()
        assert not rate[6:].any()
        whole = views.whole_train[[0]]
        assert whole.lengths.tolist() == [6]
        demographics = views.train["demographics"][0]
        np.testing.assert_array_equal(whole.values[0, :6, -11:], np.tile(demographics, (6, 1)))


class TestLeaks:
    def test_nothing_from_hour_48_on_counts(self, make: Make) -> None:
        stays = made_up_stays()
        before = load_physionet("mortality", make(stays))
        for lines in stays.values():
            lines += ["48:00,HR,150", "48:00,pH,7.0", "48:30,Lactate,9"]
        assert same(everything(before), everything(load_physionet("mortality", make(stays))))

    @pytest.mark.parametrize("task", ["mortality", "length of stay"])
    def test_test_rows_do_not_touch_training_views(self, make: Make, task: str) -> None:
        train, test = split_rows(DIED.astype(np.int64), 3, classes=task == "mortality")
        before = load_physionet(task, make(made_up_stays()), seed=3)
        shaken = load_physionet(task, make(other_values(RECORDS[test])), seed=3)
        assert same(training(before), training(shaken))
        assert not same(before.test.values(), shaken.test.values())
        learned = load_physionet(task, make(other_values(RECORDS[train])), seed=3)
        assert not same(before.test.values(), learned.test.values())  # the scale is the training rows'


def other_values(records: NDArray[Any]) -> Texts:
    """The made-up stays, of which these have other ages and measurements."""
    stays = made_up_stays()
    for record in records.tolist():
        stays[record] = [line for line in stays[record] if "Age" not in line and "HR" not in line]
        stays[record] += ["00:00,Age,89", "01:30,HR,200", "02:30,HR,30", "03:00,Lactate,8", "04:00,Urine,500"]
    return stays


# --- the real files


@pytest.fixture(scope="module")
def mortality(data_dir: Path) -> Iterator[ViewSet]:
    """Here and below, the files are read once."""
    if not (data_dir / STAYS).is_file():
        pytest.skip(f"GAL_DATA holds no {STAYS}")
    stays = physionet.read_stays(data_dir)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(physionet, "read_stays", lambda _: stays)
        yield load_physionet("mortality")


def test_counts(mortality: ViewSet) -> None:
    assert (len(mortality.y_train), len(mortality.y_test)) == (3200, 800)
    assert (mortality.y_train.sum(), mortality.y_test.sum()) == (443, 111)  # of the 554 published
    lengths = np.concatenate([part["body"].lengths for part in (mortality.train, mortality.test)])
    assert np.bincount(lengths)[[0, 48]].tolist() == [3, 3642]
    assert np.isfinite(mortality.whole_train.values).all()
