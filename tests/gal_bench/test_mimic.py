"""MIMIC-III: stays, units and codes from made-up tables, the open demo, and
that nothing leaks into a view.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gal.errors import InvalidInputError, InvalidOptionError, MissingDataError
from gal.models.sequences import Sequences
from gal_bench.data.medical import load_mimic, mimic
from gal_bench.data.medical.mimic_items import (
    BODY,
    CULTURES,
    FACTORS,
    LABORATORY,
    in_our_units,
    specimen_column,
)
from gal_bench.data.medical.mimic_tables import Tables
from gal_bench.data.medical.series import HourlyGrid, split_rows
from gal_bench.data.view_sets import ViewSet

PATIENTS = 24
BEGIN = pd.Timestamp("2150-03-01 06:30:00")
NAMES = [one.name for one in BODY]
GROWN = len(LABORATORY)
"""The column of blood cultures; CULTURES follow the laboratory's."""

Rows = dict[str, list[dict[str, Any]]]
Write = Callable[..., Path]


def at(hour: float, patient: int = 0) -> str:
    """A time so many hours after the patient's stay began."""
    return str(begin(patient) + pd.Timedelta(hours=hour))


def begin(patient: int) -> pd.Timestamp:
    return BEGIN + pd.Timedelta(days=10 * patient)


def stay(patient: int, *, number: int = 0, hours: float = 60, **other: Any) -> dict[str, Any]:
    """A row of ICUSTAYS; ``number`` tells stays of one admission apart."""
    row: dict[str, Any] = {
        "subject_id": patient,
        "hadm_id": 1000 + patient,
        "icustay_id": 5000 + 10 * patient + number,
    }
    row |= {"first_careunit": "MICU", "last_careunit": "MICU", "first_wardid": 7, "last_wardid": 7}
    return row | {"intime": at(0, patient), "outtime": at(hours, patient)} | other


def chart(patient: int, hour: float, item: int, value: Any, error: Any = "") -> dict[str, Any]:
    row = {"subject_id": patient, "itemid": item, "charttime": at(hour, patient), "valuenum": value}
    return row | {"error": error, "cgid": 1, "value": f"{value} as text"}


def lab(patient: int, hour: float, item: int, value: Any) -> dict[str, Any]:
    return {"subject_id": patient, "hadm_id": "", "itemid": item} | {
        "charttime": at(hour, patient),
        "valuenum": value,
    }


def culture(
    patient: int, hour: float, specimen: str, grown: str = "", interpretation: str = ""
) -> dict[str, Any]:
    row: dict[str, Any] = {"subject_id": patient, "chartdate": at(hour, patient)[:10] + " 00:00:00"}
    row |= {"charttime": at(hour, patient), "spec_type_desc": specimen}
    return row | {"org_name": grown, "interpretation": interpretation}


def hospital() -> Rows:
    """One stay for each patient, every third of whom dies, with a few measurements and diagnoses."""
    rng = np.random.default_rng(0)
    rows: Rows = {"ICUSTAYS": [stay(i, hours=50 + i) for i in range(PATIENTS)]}
    rows["PATIENTS"] = [
        {"subject_id": i, "gender": "FM"[i % 2], "dob": f"{2060 + i}-05-01 00:00:00"} for i in range(PATIENTS)
    ]
    rows["ADMISSIONS"] = [admission(i) for i in range(PATIENTS)]
    rows["CHARTEVENTS"] = [
        chart(i, hour + 0.5, (211, 220045)[i % 2], rng.integers(60, 120))
        for i in range(PATIENTS)
        for hour in range(0, 20 + i, 3)
    ]
    rows["LABEVENTS"] = [
        lab(i, hour, 50912, round(rng.uniform(0.5, 3), 1)) for i in range(PATIENTS) for hour in (2, 14)
    ]
    rows["MICROBIOLOGYEVENTS"] = [
        culture(i, 5, "BLOOD CULTURE", "E. COLI" * (i % 2)) for i in range(PATIENTS)
    ]
    rows["DIAGNOSES_ICD"] = [
        {"hadm_id": 1000 + i, "seq_num": j + 1, "icd9_code": code}
        for i in range(PATIENTS)
        for j, code in enumerate(["99591", "V4581", f"{400 + i % 5}9"])
    ]
    return rows


def admission(patient: int, **other: Any) -> dict[str, Any]:
    row = {"hadm_id": 1000 + patient, "admission_type": "EMERGENCY", "insurance": "Medicare"}
    row |= {"marital_status": "", "ethnicity": ["WHITE", "HISPANIC/LATINO - CUBAN"][patient % 2]}
    return row | {"hospital_expire_flag": int(patient % 3 == 0)} | other


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Makes a folder of CSV files of the tables."""

    def folder(rows: Rows, name: str = "mimic", *, upper: bool = True, packed: bool = False) -> Path:
        where = tmp_path / name
        where.mkdir(exist_ok=True)
        for table, found in rows.items():
            frame = pd.DataFrame(found)
            frame.insert(0, "row_id", np.arange(len(frame)))
            frame.columns = frame.columns.str.upper() if upper else frame.columns.str.lower()
            content = frame.to_csv(index=False).encode()
            path = where / f"{table}.csv{'.gz' * packed}"
            path.write_bytes(gzip.compress(content) if packed else content)
        return where

    return folder


def arrays(views: Any) -> list[Any]:
    return [
        part
        for view in views
        for part in ((view.values, view.lengths) if isinstance(view, Sequences) else (view,))
    ]


def same(some: Any, others: Any) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(arrays(some), arrays(others), strict=True))


def everything(views: ViewSet) -> list[Any]:
    return [*views.train.values(), *views.test.values(), views.whole_train, views.whole_test]


def parts(seed: int = 0) -> tuple[Any, Any]:
    """Of the hospital as it is made up, where patient and row are the same number."""
    return split_rows(np.arange(PATIENTS), seed, (np.arange(PATIENTS) % 3 == 0).astype(np.int64))


class TestViews:
    def test_four_organizations(self, write: Write) -> None:
        views = load_mimic("mortality", folder=write(hospital()))
        assert list(views.train) == ["microbiology", "demographics", "body", "icd"]
        assert views.label_holder == "microbiology"
        assert views.metric == "auc"
        columns = 2 * (len(LABORATORY) + len(CULTURES)), 2 * len(BODY)
        shapes = [view.shape[1:] for view in views.train.values()]
        assert shapes == [(48, columns[0]), (9,), (48, columns[1]), (40,)]
        assert views.train["icd"].values.dtype == np.int64
        assert views.train["body"].values.dtype == views.train["demographics"].dtype == np.float32
        assert views.whole_train.shape == (19, 48, sum(columns) + 9 + 7)
        assert (len(views.y_test), views.y_test.sum()) == (5, 2)

    def test_length_of_stay_is_in_hours(self, write: Write) -> None:
        views = load_mimic("length of stay", folder=write(hospital()))
        assert views.metric == "mad"
        assert sorted([*views.y_train, *views.y_test]) == [50 + i for i in range(PATIENTS)]
        assert views.train["body"].shape[1] == 24

    @pytest.mark.parametrize(("upper", "packed"), [(False, False), (True, True), (False, True)])
    def test_other_spelling_and_packing(self, write: Write, upper: bool, packed: bool) -> None:
        first = load_mimic("mortality", folder=write(hospital()))
        other = load_mimic("mortality", folder=write(hospital(), "other", upper=upper, packed=packed))
        assert same(everything(first), everything(other))

    @pytest.mark.parametrize("rows", [5, 40, 10_000])
    def test_chunks_add_up(self, write: Write, rows: int) -> None:
        folder = write(hospital())
        small = load_mimic("mortality", folder=folder, chunk_rows=rows)
        assert same(everything(load_mimic("mortality", folder=folder)), everything(small))

    def test_a_stay_without_a_measurement_or_diagnosis(self, write: Write) -> None:
        rows = hospital()
        gone = int(parts()[0][0])
        for table in ("CHARTEVENTS", "LABEVENTS", "MICROBIOLOGYEVENTS"):
            rows[table] = [row for row in rows[table] if row["subject_id"] != gone]
        rows["DIAGNOSES_ICD"] = [row for row in rows["DIAGNOSES_ICD"] if row["hadm_id"] != 1000 + gone]
        views = load_mimic("mortality", folder=write(rows))
        for name in ("microbiology", "body", "icd"):
            assert views.train[name].lengths[0] == 0
            assert not views.train[name].values[0].any()
            assert views.train[name].lengths[1] > 0
        assert views.whole_train.lengths[0] == 1


class TestMeasurements:
    def grid(self, write: Write, *charted: dict[str, Any]) -> tuple[Any, Any]:
        """Values and flags of the first training row, (hours, columns); others
        have the same mean everywhere.
        """
        rows = hospital()
        rows["CHARTEVENTS"] = list(charted)
        folder = write(rows)
        tables = Tables.in_folder(folder)
        stays = mimic.find_stays(tables, 48, all_stays=False)
        grid = HourlyGrid(list(BODY), len(stays), 48)
        mimic.add_measurements(grid, tables, "CHARTEVENTS", BODY, stays, 2)
        return grid.values[0], grid.measured[0]

    def test_units(self, write: Write) -> None:
        values, _ = self.grid(
            write,
            chart(0, 0, 223761, 98.6),  # Fahrenheit
            chart(0, 1, 676, 38.5),  # Celsius
            chart(0, 2, 676, 101.3),  # Fahrenheit, charted as Celsius
            chart(0, 3, 678, 36.5),  # Celsius, charted as Fahrenheit
            chart(0, 4, 226531, 220.462),  # pounds
            chart(0, 5, 226512, 100),
            chart(0, 6, 226707, 70),  # inches
            chart(0, 7, 226730, 178),
            chart(0, 8, 920, 65),
        )
        np.testing.assert_allclose(values[:4, NAMES.index("temperature (C)")], [37, 38.5, 38.5, 36.5])
        np.testing.assert_allclose(values[4:6, NAMES.index("weight (kg)")], [100, 100], atol=1e-3)
        np.testing.assert_allclose(values[6:9, NAMES.index("height (cm)")], [177.8, 178, 165.1])
        assert np.isfinite(values).sum() == 9

    def test_slips_and_errors_do_not_count(self, write: Write) -> None:
        values, measured = self.grid(
            write,
            chart(0, 1, 211, 0),
            chart(0, 1, 220179, 11_647),
            chart(0, 1, 211, ""),
            chart(0, 1, 99, 80),  # another item
            chart(0, 2, 220045, 80, error=0),
            chart(0, 2, 211, 90),
            chart(0, 2, 220045, 250, error=1),
        )
        assert measured.sum() == 1
        assert values[2, 0] == 85

    def test_hours_are_those_of_the_stay(self, write: Write) -> None:
        _, measured = self.grid(
            write,
            *(chart(0, hour, 211, 80) for hour in (-1, -0.01, 0, 0.99, 1, 47.99, 48, 400)),
            *(chart(1, hour, 211, 80) for hour in (5, 6)),
        )
        assert np.flatnonzero(measured[:, 0]).tolist() == [0, 1, 47]

    def test_an_item_is_one_measurement(self) -> None:
        for items in (BODY, LABORATORY):
            numbers = [number for some in items.values() for number in some]
            assert len(set(numbers)) == len(numbers)
        assert set(FACTORS) <= {number for some in BODY.values() for number in some}

    def test_values_given_are_left_alone(self) -> None:
        value = np.array([98.6, 150.0])
        in_our_units(np.array([223761, 226531]), value, np.array([5, 11]))
        assert value.tolist() == [98.6, 150.0]


class TestCultures:
    def cultures(self, write: Write, *found: dict[str, Any]) -> Any:
        """(hours, cultures) of the first patient."""
        rows = hospital()
        rows["MICROBIOLOGYEVENTS"] = list(found)
        tables = Tables.in_folder(write(rows))
        stays = mimic.find_stays(tables, 48, all_stays=False)
        grid = HourlyGrid([*LABORATORY, *CULTURES], len(stays), 48)
        mimic.add_cultures(grid, tables, stays)
        return grid.values[0, :, GROWN:]

    def test_taken_grown_and_resistant(self, write: Write) -> None:
        values = self.cultures(
            write,
            culture(0, 1, "BLOOD CULTURE"),
            culture(0, 3, "URINE", "YEAST"),
            culture(0, 4, "SPUTUM", "STAPH AUREUS COAG +", "S"),
            culture(0, 4, "SPUTUM", "STAPH AUREUS COAG +", "R"),
        )
        found = [
            (int(h), int(c), float(values[h, c])) for h, c in zip(*np.nonzero(~np.isnan(values)), strict=True)
        ]
        assert found == [(1, 0, 0.0), (3, 1, 1.0), (4, 2, 1.0), (4, 4, 0.5)]

    def test_a_date_alone_is_the_end_of_the_day(self, write: Write) -> None:
        values = self.cultures(write, culture(0, 1, "SWAB") | {"charttime": ""})
        assert np.flatnonzero(~np.isnan(values[:, 3])).tolist() == [17]  # 06:30 to 23:59

    @pytest.mark.parametrize(
        ("name", "column"),
        [
            ("BLOOD CULTURE", 0),
            ("URINE", 1),
            ("Mini-BAL", 2),
            ("BRONCHOALVEOLAR LAVAGE", 2),
            ("MRSA SCREEN", 3),
        ],
    )
    def test_specimens(self, name: str, column: int) -> None:
        assert specimen_column(name) == column


class TestStays:
    def found(self, write: Write, rows: Rows, **how: Any) -> pd.DataFrame:
        tables = Tables.in_folder(write(rows))
        return mimic.find_stays(tables, **{"hours": 48, "all_stays": False} | how)

    def test_short_stays_and_children_are_left_out(self, write: Write) -> None:
        rows = hospital()
        rows["ICUSTAYS"][3] = stay(3, hours=47.9)
        rows["ICUSTAYS"][4] = stay(4, hours=48)
        rows["ICUSTAYS"][5] = stay(5, outtime="")
        rows["PATIENTS"][6]["dob"] = "2132-06-01 00:00:00"
        rows["PATIENTS"][7]["dob"] = "2132-03-01 00:00:00"
        found = self.found(write, rows)
        assert sorted(set(range(PATIENTS)) - set(found["subject_id"])) == [3, 5, 6]
        assert found["row"].tolist() == list(range(PATIENTS - 3))
        assert len(self.found(write, rows, hours=24)) == PATIENTS - 2

    def test_several_stays_and_moves(self, write: Write) -> None:
        rows = hospital()
        rows["ICUSTAYS"] += [stay(2, number=1)]
        rows["ICUSTAYS"][8] = stay(8, last_careunit="SICU")
        rows["ICUSTAYS"][9] = stay(9, last_wardid=8)
        assert sorted(set(range(PATIENTS)) - set(self.found(write, rows)["subject_id"])) == [2, 8, 9]
        assert len(self.found(write, rows, all_stays=True)) == PATIENTS + 1

    def test_ages(self, write: Write) -> None:
        rows = hospital()
        rows["PATIENTS"][1]["dob"] = "1850-03-01 00:00:00"  # older than 89: moved by 300 years
        found = self.found(write, rows).set_index("subject_id")["age"]
        assert found[0] == pytest.approx(89.83, abs=0.01)
        assert found[1] == 91.4

    def test_no_patient_is_in_both_parts(self, write: Write) -> None:
        rows = hospital()
        rows["ICUSTAYS"] += [stay(i, number=1) for i in range(0, PATIENTS, 2)]
        stays = self.found(write, rows, all_stays=True)
        patients, died = stays["subject_id"].to_numpy(), stays["died"].to_numpy()
        assert len(patients) == 36
        for seed in range(4):
            train, test = split_rows(patients, seed, died)
            assert not set(patients[train]) & set(patients[test])
            views = load_mimic("mortality", folder=write(rows), all_stays=True, seed=seed)
            assert views.y_test.tolist() == died[test].tolist()

    def test_demographics(self, write: Write) -> None:
        train, _ = parts()
        views = load_mimic("mortality", folder=write(hospital()))
        table = views.train["demographics"]
        # age; F, M; EMERGENCY; Medicare; unknown; HISPANIC, WHITE; MICU: levels in order
        np.testing.assert_array_equal(table[:, 1], train % 2 == 0)
        np.testing.assert_array_equal(table[:, 2], train % 2 == 1)
        assert (table[:, 3:6] == 1).all()
        assert np.corrcoef(table[:, 0], train)[0, 1] < -0.99  # who has a higher number is born later


class TestDiagnoses:
    def test_categories(self) -> None:
        codes = pd.Series(["99591", "V4581", "E8788", "0389", "486", " 4280 "])
        assert mimic.category(codes).tolist() == ["995", "V45", "E878", "038", "486", "428"]

    def test_codes_of_the_training_rows_only(self, write: Write) -> None:
        rows = hospital()
        train, test = parts()
        rows["DIAGNOSES_ICD"] += [
            {"hadm_id": 1000 + int(row), "seq_num": 0, "icd9_code": code}
            for row, code in ((test[0], "1234"), (train[0], "5678"))
        ]
        views = load_mimic("mortality", folder=write(rows))
        known = [*(f"{400 + i}" for i in range(5)), "567", "995", "V45"]
        number = {code: i for i, code in enumerate(known, start=1)}
        first, second = int(train[0]), int(test[0])
        kin = [[number["995"], number["V45"], number[str(400 + row % 5)]] for row in (first, second)]
        assert views.train["icd"].values[0, :5].tolist() == [number["567"], *kin[0], 0]
        assert views.test["icd"].values[0, :5].tolist() == [0, *kin[1], 0]
        assert views.test["icd"].lengths[0] == 4
        assert views.whole_train.shape[2] - views.train["demographics"].shape[1] == 2 * 45 + len(known)

    def test_the_training_rows_say_what_is_frequent(
        self, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mimic, "WHOLE_CODES", 3)
        before = load_mimic("mortality", folder=write(hospital()))
        assert before.whole_train.shape[2] == 2 * 45 + before.train["demographics"].shape[1] + 3
        for code in range(400, 405):
            rows = hospital()
            rows["DIAGNOSES_ICD"] += [
                {"hadm_id": 1000 + int(row), "seq_num": 9, "icd9_code": str(code)} for row in parts()[1]
            ]
            assert same([before.whole_train], [load_mimic("mortality", folder=write(rows)).whole_train])

    def test_more_than_can_be_kept(self, write: Write) -> None:
        rows = hospital()
        rows["DIAGNOSES_ICD"] += [
            {"hadm_id": 1000 + i, "seq_num": 4 + j, "icd9_code": f"{500 + j}"}
            for i in range(2)
            for j in range(60)
        ]
        views = load_mimic("mortality", folder=write(rows))
        lengths = np.concatenate([part["icd"].lengths for part in (views.train, views.test)])
        assert sorted(lengths.tolist()) == [3] * 22 + [40] * 2


class TestLeaks:
    @pytest.mark.parametrize(("task", "hours"), [("mortality", 48), ("length of stay", 24)])
    def test_nothing_after_the_hours_counts(self, write: Write, task: str, hours: int) -> None:
        rows = hospital()
        before = load_mimic(task, folder=write(rows))
        for i in range(PATIENTS):
            rows["CHARTEVENTS"] += [chart(i, hours, 211, 150), chart(i, 49.5, 646, 80)]
            rows["LABEVENTS"] += [lab(i, hours, 50912, 9), lab(i, -2, 50912, 9)]
            rows["MICROBIOLOGYEVENTS"].append(culture(i, hours, "URINE", "YEAST", "R"))
        assert same(everything(before), everything(load_mimic(task, folder=write(rows))))
        rows["CHARTEVENTS"].append(chart(0, hours - 0.1, 211, 150))
        assert not same(everything(before), everything(load_mimic(task, folder=write(rows))))

    def test_test_rows_do_not_touch_training_views(self, write: Write) -> None:
        train, test = parts(seed=2)
        before = load_mimic("mortality", folder=write(hospital()), seed=2)
        shaken = load_mimic("mortality", folder=write(other_values(test)), seed=2)
        assert same([*before.train.values()], [*shaken.train.values()])
        assert same([before.whole_train], [shaken.whole_train])
        for name in before.test:
            assert not same([before.test[name]], [shaken.test[name]]), name
        learned = load_mimic("mortality", folder=write(other_values(train)), seed=2)
        for name in before.test:  # scales, levels and codes are the training rows'
            assert not same([before.test[name]], [learned.test[name]]), name

    def test_length_does_not_tell_the_length_of_stay(self, write: Write) -> None:
        rows = hospital()
        rows["CHARTEVENTS"] = [
            chart(i, hour, 211, 80) for i in range(PATIENTS) for hour in range(0, 50 + i)
        ]  # measured to the end
        views = load_mimic("length of stay", folder=write(rows))
        assert set(views.train["body"].lengths.tolist()) == {24}


def other_values(patients: Any) -> Rows:
    """The made-up hospital, where these patients have other ages, measurements and diagnoses."""
    rows, some = hospital(), {int(one) for one in patients}
    for row in rows["PATIENTS"]:
        row["dob"] = "2100-01-01 00:00:00" if row["subject_id"] in some else row["dob"]
    for row in rows["ADMISSIONS"]:
        row["insurance"] = "Private" if row["hadm_id"] - 1000 in some else row["insurance"]
    for table in ("CHARTEVENTS", "LABEVENTS"):
        for row in rows[table]:
            row["valuenum"] = 20 + row["valuenum"] if row["subject_id"] in some else row["valuenum"]
    for row in rows["DIAGNOSES_ICD"]:
        row["icd9_code"] = "7777" if row["hadm_id"] - 1000 in some else row["icd9_code"]
    return rows


class TestWrong:
    def test_options(self, write: Write) -> None:
        with pytest.raises(InvalidOptionError, match="one of mortality, length of stay, got 'age'"):
            load_mimic("age", folder="anywhere")
        with pytest.raises(InvalidOptionError, match="1 or more, got 0"):
            load_mimic("mortality", folder="anywhere", hours=0)

    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(MissingDataError, match="is not a folder: pass the one that holds MIMIC-III"):
            load_mimic("mortality", folder=tmp_path / "nowhere")
        with pytest.raises(MissingDataError, match=r"expected .*tar\.xz, which is not there.*folder="):
            load_mimic("mortality", tmp_path)

    def test_no_table(self, write: Write) -> None:
        folder = write(hospital())
        (folder / "LABEVENTS.csv").unlink()
        with pytest.raises(MissingDataError, match=r"holds no LABEVENTS: expected LABEVENTS\.csv or .*\.gz"):
            load_mimic("mortality", folder=folder)

    def test_no_column(self, write: Write) -> None:
        rows = hospital()
        for row in rows["CHARTEVENTS"]:
            del row["valuenum"]
        with pytest.raises(InvalidInputError, match=r"CHARTEVENTS in .* has no column valuenum: .*charttime"):
            load_mimic("mortality", folder=write(rows))

    def test_half_a_file(self, write: Write) -> None:
        folder = write(hospital(), packed=True)
        path = folder / "CHARTEVENTS.csv.gz"
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(InvalidInputError, match=r"CHARTEVENTS in .* cannot be read to its end"):
            load_mimic("mortality", folder=folder)

    @pytest.mark.parametrize("content", ["", "SUBJECT_ID,HADM_ID\nx,y\n"])
    def test_no_table_at_all(self, write: Write, content: str) -> None:
        folder = write(hospital())
        (folder / "ICUSTAYS.csv").write_text(content)
        with pytest.raises(InvalidInputError, match=r"ICUSTAYS in .* (has no column|is not a table)"):
            load_mimic("mortality", folder=folder)

    def test_text_where_numbers_belong(self, write: Write) -> None:
        rows = hospital()
        rows["CHARTEVENTS"][5]["valuenum"] = "eighty"
        with pytest.raises(
            InvalidInputError, match=r"CHARTEVENTS in .* is not a table of MIMIC-III: .*eighty"
        ):
            load_mimic("mortality", folder=write(rows))

    def test_nobody_stays_so_long(self, write: Write) -> None:
        with pytest.raises(
            InvalidInputError, match="no ICU stay of an adult of at least 500 hours: 24 stays"
        ):
            load_mimic("length of stay", folder=write(hospital()), hours=500)

    def test_nobody_dies(self, write: Write) -> None:
        rows = hospital()
        rows["ADMISSIONS"] = [admission(i, hospital_expire_flag=0) for i in range(PATIENTS)]
        with pytest.raises(
            InvalidInputError, match="training rows need stays that survived and stays that died"
        ):
            load_mimic("mortality", folder=write(rows))


# --- the open demo, and the credentialed set


@pytest.fixture(scope="module")
def demo() -> Iterator[Tables]:
    """Unpacked once."""
    folder = os.environ.get("GAL_DATA")
    if not folder:
        pytest.skip("GAL_DATA is not set: it names the folder with mimic3_demo")
    if not (Path(folder) / mimic.DEMO).is_file():
        pytest.skip(f"GAL_DATA holds no {mimic.DEMO}")
    name, tables = mimic._tables(folder, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mimic, "_tables", lambda *_: (name, tables))
        yield tables


@pytest.mark.usefixtures("demo")
class TestDemo:
    @pytest.mark.parametrize(
        ("all_stays", "train", "test", "died"), [(False, 48, 9, (14, 3)), (True, 60, 12, (22, 5))]
    )
    def test_mortality(self, all_stays: bool, train: int, test: int, died: tuple[int, int]) -> None:
        views = load_mimic("mortality", all_stays=all_stays)
        assert views.name == "MIMIC-III demo mortality"
        assert (len(views.y_train), len(views.y_test)) == (train, test)
        assert (views.y_train.sum(), views.y_test.sum()) == died
        assert views.train["microbiology"].shape == (train, 48, 64)
        assert views.train["body"].shape == (train, 48, 26)
        assert views.train["body"].lengths.min() > 40
        assert np.isfinite(views.whole_train.values).all()
        assert views.test["icd"].values.max() <= views.train["icd"].values.max()

    def test_length_of_stay(self) -> None:
        views = load_mimic("length of stay")
        hours = np.concatenate([views.y_train, views.y_test])
        assert len(hours) == 92
        assert hours.min() >= 24
        assert hours.max() == pytest.approx(849.76, abs=0.01)
        assert views.train["body"].shape[1] == 24

    def test_items_are_what_the_dictionaries_say(self, demo: Tables) -> None:
        words = {
            **{"heart": "heart rate", "systolic": "systolic", "diastolic": "diastolic", "mean": "mean"},
            **{"respiratory": "resp", "temperature": "temp", "SpO2": "o2", "weight": "w", "height": "h"},
            **{"glucose": "glucose", "GCS eyes": "eye", "GCS words": "verbal", "GCS movement": "motor"},
        }
        labels = demo.read("D_ITEMS", {"itemid": np.int64, "label": str}).set_index("itemid")["label"]
        for measure, items in BODY.items():
            word = next(word for start, word in words.items() if measure.name.startswith(start))
            for item in items:
                assert word in labels[item].lower(), (measure.name, item, labels[item])
        kinds = demo.read("D_LABITEMS", {"itemid": np.int64, "fluid": str}).set_index("itemid")["fluid"]
        assert {kinds[item] for items in LABORATORY.values() for item in items} == {"Blood"}

    def test_both_systems_are_read(self, demo: Tables) -> None:
        """Every vital sign is measured under CareVue and under MetaVision."""
        stays = mimic.find_stays(demo, 24, all_stays=True)
        systems = demo.read("ICUSTAYS", {"icustay_id": np.int64, "dbsource": str})
        source = stays.merge(systems, on="icustay_id")["dbsource"].to_numpy(dtype=np.str_)
        grid = HourlyGrid(list(BODY), len(stays), 24)
        mimic.add_measurements(grid, demo, "CHARTEVENTS", BODY, stays, 100_000)
        for system in ("carevue", "metavision"):
            assert grid.measured[source == system].any(axis=(0, 1)).all(), system


@pytest.mark.slow
def test_the_full_set() -> None:
    folder = os.environ.get("GAL_MIMIC")
    if not folder:
        pytest.skip("credentialed data: GAL_MIMIC names the folder with the CSV files of MIMIC-III 1.4")
    views = load_mimic("mortality", folder=folder)
    assert len(views.y_train) + len(views.y_test) > 15_000
    assert 0.08 < views.y_train.mean() < 0.2
