"""Length of stay and death in hospital from MIMIC-III's CSV tables, in the hands of
the paper's four organizations.

The full set needs credentials; ``folder`` names its unpacked files. Without it, the open demo of 100
patients is read from the data folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidInputError, InvalidOptionError
from gal.models.sequences import Sequences
from gal_bench.data.medical.mimic_items import (
    BODY,
    CULTURES,
    LABORATORY,
    Items,
    in_our_units,
    specimen_column,
)
from gal_bench.data.medical.mimic_tables import Tables
from gal_bench.data.medical.series import (
    LENGTH_OF_STAY,
    MORTALITY,
    TASKS,
    HourlyGrid,
    Positions,
    as_view_set,
    joined,
    lengths_of,
    sequence_view,
    split_rows,
    static_table,
)
from gal_bench.data.sources import Source
from gal_bench.data.view_sets import ViewSet

if TYPE_CHECKING:
    import pandas as pd

NAME = "MIMIC-III demo"
DEMO = "mimic3_demo/mimic-iii-clinical-database-demo-1.4.tar.xz"
SOURCES = {
    NAME: Source(
        {DEMO: "cc1052bb288a8d94ac816549d78d528e564d5b22e63ad5421c2cf552809451eb"},
        "the CSV files of PhysioNet's 'MIMIC-III Clinical Database Demo' 1.4, "
        "https://physionet.org/content/mimiciii-demo/1.4/ (ODbL 1.0), packed into one archive; a folder "
        "with the "
        "CSV files themselves, of the demo or of the full set, goes into folder=",
    )
}

HOURS = {MORTALITY: 48, LENGTH_OF_STAY: 24}
"""How much of a stay is seen where the caller does not say."""
ADULT = 18
SHIFTED, AGE_OF_SHIFTED = 150, 91.4
"""Who was older than 89 has a birth some 300 years back; 91.4 years is the median of their true ages."""
MAX_CODES = 40
"""Diagnoses of an admission that count; MIMIC-III lists 39 at most."""
WHOLE_CODES = 100
"""The most frequent diagnoses, which are columns of the view of who holds everything."""
CHUNK_ROWS = 2_000_000
CATEGORIES = ("gender", "admission_type", "insurance", "marital_status", "ethnicity", "first_careunit")

# Types of the columns that are read.
STAY_TYPES = {
    **dict.fromkeys(("subject_id", "hadm_id", "icustay_id"), np.int64),
    **dict.fromkeys(("first_wardid", "last_wardid"), np.float64),
    **dict.fromkeys(("first_careunit", "last_careunit", "intime", "outtime"), str),
}
ADMISSION_TYPES = {
    "hadm_id": np.int64,
    "hospital_expire_flag": np.int64,
    **dict.fromkeys(("admission_type", "insurance", "marital_status", "ethnicity"), str),
}
PATIENT_TYPES = {"subject_id": np.int64, "gender": str, "dob": str}
LAB_TYPES = {"subject_id": np.int64, "itemid": np.int64, "charttime": str, "valuenum": np.float64}
CHART_TYPES = {**LAB_TYPES, "error": np.float64}
CULTURE_TYPES = {
    "subject_id": np.int64,
    **dict.fromkeys(("chartdate", "charttime", "spec_type_desc", "org_name", "interpretation"), str),
}
DIAGNOSIS_TYPES = {"hadm_id": np.int64, "seq_num": np.float64, "icd9_code": str}


def load_mimic(
    task: str,
    data_dir: Path | str | None = None,
    *,
    folder: Path | str | None = None,
    seed: int = 0,
    hours: int | None = None,
    all_stays: bool = False,
    chunk_rows: int = CHUNK_ROWS,
) -> ViewSet:
    """``task`` is "mortality" (death in hospital, AUC) or "length of stay" (hours in the ICU, MAD).

    ``folder`` holds the CSV files (plain or .gz, names of columns in either case); without it the demo is
    read from ``data_dir`` (else GAL_DATA). A row is an ICU stay of an adult that lasts at least ``hours``, of
    which only these are seen (48 for mortality, 24 for length of stay): with shorter stays among them, the
    end of a sequence would tell the length of stay. Unless ``all_stays``, admissions with several ICU stays
    or a move between units are left out. A fifth of the patients, drawn by ``seed``, is for the test.

    "microbiology" (the label holder) and "body" are ``Sequences`` (n, hours, 2 * columns) float32:
    standardised values, carried forward, then whether each was measured in that hour. "demographics" is a
    table (n, columns) float32. "icd" is ``Sequences`` (n, 40) of codes: the three-digit ICD-9 categories in
    the order of the record, 1, 2, ... by the training rows' table, 0 for what these do not have. Hospitals
    assign ICD codes at discharge, and cultures need days: in real use both would come too late.
    ``chunk_rows`` of CHARTEVENTS are in memory at a time.
    """
    if task not in TASKS:
        raise InvalidOptionError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
    hours = HOURS[task] if hours is None else hours
    if hours < 1 or chunk_rows < 1:
        raise InvalidOptionError(f"hours and chunk_rows must be 1 or more, got {hours} and {chunk_rows}")
    name, tables = _tables(data_dir, folder)
    stays = find_stays(tables, hours, all_stays=all_stays)
    y = stays["died" if task == MORTALITY else "stay_hours"].to_numpy()
    parts = split_rows(stays["subject_id"].to_numpy(), seed, y if task == MORTALITY else None)
    views, whole = _views(tables, stays, hours, chunk_rows, parts[0])
    return as_view_set(f"{name} {task}", task, views=views, whole=whole, y=y, parts=parts)


def _tables(data_dir: Path | str | None, folder: Path | str | None) -> tuple[str, Tables]:
    if folder is not None:
        return "MIMIC-III", Tables.in_folder(Path(folder))
    source = SOURCES[NAME]
    path = source.find(NAME, None if data_dir is None else Path(data_dir), DEMO)
    return NAME, Tables.in_archive(str(path), source.read(NAME, path))


def _views(
    tables: Tables, stays: pd.DataFrame, hours: int, chunk_rows: int, train: Positions
) -> tuple[dict[str, Any], Sequences]:
    """By organization, the label holder first, and all as one."""
    microbiology = HourlyGrid([*LABORATORY, *CULTURES], len(stays), hours)
    add_measurements(microbiology, tables, "LABEVENTS", LABORATORY, stays, chunk_rows)
    add_cultures(microbiology, tables, stays)
    body = HourlyGrid(list(BODY), len(stays), hours)
    add_measurements(body, tables, "CHARTEVENTS", BODY, stays, chunk_rows)
    lengths = lengths_of([microbiology, body])
    series = [sequence_view(grid, lengths, train) for grid in (microbiology, body)]
    categories = {one: stays[one].to_numpy(dtype=np.str_) for one in CATEGORIES}
    demographics = static_table({"age": stays["age"].to_numpy(np.float64)}, categories, train)
    icd, frequent = diagnoses(tables, stays, train)
    views = {"microbiology": series[0], "demographics": demographics, "body": series[1], "icd": icd}
    return views, joined(series, [demographics, frequent])


# --- rows


def find_stays(tables: Tables, hours: int, *, all_stays: bool) -> pd.DataFrame:
    """One row per stay, by its number: ``row`` 0, 1, ..., patient, admission,
    begin, labels and demographics.
    """
    stays = tables.read("ICUSTAYS", STAY_TYPES).sort_values("icustay_id")
    if not all_stays:
        once = ~stays["hadm_id"].duplicated(keep=False)
        stayed = stays["first_wardid"].eq(stays["last_wardid"])
        stayed &= stays["first_careunit"].eq(stays["last_careunit"])
        stays = stays[once & stayed]
    stays = stays.merge(tables.read("ADMISSIONS", ADMISSION_TYPES), on="hadm_id")
    stays = stays.merge(tables.read("PATIENTS", PATIENT_TYPES), on="subject_id")
    stays["intime"], end = _times(stays["intime"]), _times(stays["outtime"])
    stays["stay_hours"] = (end - stays["intime"]).dt.total_seconds() / 3600
    stays["age"] = ages(stays["dob"], stays["intime"])
    stays["died"] = stays["hospital_expire_flag"]
    for one in CATEGORIES:
        stays[one] = stays[one].fillna("unknown")
    stays["ethnicity"] = stays["ethnicity"].str.extract(r"^(\w+)", expand=False).fillna("unknown")
    kept = stays[(stays["age"] >= ADULT) & (stays["stay_hours"] >= hours)].reset_index(drop=True)
    if kept.empty:
        raise InvalidInputError(
            f"{tables.where} has no ICU stay of an adult of at least {hours} hours: {len(stays)} stays "
            "looked at; "
            "ask for fewer hours, or for all_stays=True"
        )
    return kept.assign(row=np.arange(len(kept)))


def ages(born: pd.Series[Any], at: pd.Series[Any]) -> NDArray[np.float64]:
    """In years; in days first, because 300 years are more nanoseconds than a time difference can hold."""
    days = _times(at).to_numpy().astype("datetime64[D]") - _times(born).to_numpy().astype("datetime64[D]")
    years = days.astype(np.float64) / 365.2425
    return np.where(years > SHIFTED, AGE_OF_SHIFTED, years)


def _times(texts: pd.Series[Any]) -> pd.Series[Any]:
    import pandas as pd

    return pd.to_datetime(texts, format="%Y-%m-%d %H:%M:%S")


# --- columns


def add_measurements(
    grid: HourlyGrid, tables: Tables, name: str, items: Items, stays: pd.DataFrame, chunk_rows: int
) -> None:
    """What the table says about the stays, a chunk at a time; rows marked as errors do not count."""
    column_of = {item: column for column, ids in enumerate(items.values()) for item in ids}
    patients = stays["subject_id"].unique()
    types = CHART_TYPES if name == "CHARTEVENTS" else LAB_TYPES
    for chunk in tables.chunks(name, types, rows=chunk_rows):
        wanted = chunk["itemid"].isin(column_of) & chunk["subject_id"].isin(patients)
        if "error" in chunk:
            wanted &= chunk["error"].ne(1)
        found = placed(chunk[wanted & chunk["charttime"].notna()], stays)
        column = np.array([column_of[item] for item in found["itemid"].tolist()], dtype=np.int64)
        value = found["valuenum"].to_numpy(np.float64)
        if items is BODY:
            value = in_our_units(found["itemid"].to_numpy(np.int64), value, column)
        grid.add(found["row"].to_numpy(), found["hour"].to_numpy(), column, value)


def placed(events: pd.DataFrame, stays: pd.DataFrame) -> pd.DataFrame:
    """Events with the ``row`` and ``hour`` of the patient's stay; an hour may lie before or after the stay.

    By patient and time, because laboratories do not know of ICU stays, and some charts name the wrong one.
    """
    found = events.merge(stays[["subject_id", "row", "intime"]], on="subject_id")
    seconds = (_times(found["charttime"]) - found["intime"]).dt.total_seconds()
    return found.assign(hour=np.floor(seconds.to_numpy(np.float64) / 3600).astype(np.int64))


def add_cultures(grid: HourlyGrid, tables: Tables, stays: pd.DataFrame) -> None:
    """At the hour in which the specimen was taken; at the end of the day, where only that is known."""
    events = tables.read("MICROBIOLOGYEVENTS", CULTURE_TYPES)
    events = events[events["subject_id"].isin(stays["subject_id"])]
    late = events["chartdate"].str[:10] + " 23:59:59"  # never earlier than it was taken
    events = events.assign(charttime=events["charttime"].fillna(late))
    found = placed(events[events["charttime"].notna()], stays)
    first = len(grid.measures) - len(CULTURES)
    specimen = first + found["spec_type_desc"].fillna("").map(specimen_column).to_numpy(np.int64)
    row, hour = found["row"].to_numpy(), found["hour"].to_numpy()
    grid.add(row, hour, specimen, found["org_name"].notna().to_numpy(np.float64))
    tried = found["interpretation"].isin(["S", "I", "R"]).to_numpy()
    resisted = found["interpretation"].ne("S").to_numpy(np.float64)
    last = np.full(tried.sum(), len(grid.measures) - 1)
    grid.add(row[tried], hour[tried], last, resisted[tried])


def diagnoses(tables: Tables, stays: pd.DataFrame, train: Positions) -> tuple[Sequences, NDArray[np.float32]]:
    """Codes of all rows (n, 40), and (n, 100 at most) whether a row has each of
    the training rows' most frequent.
    """
    found = tables.read("DIAGNOSES_ICD", DIAGNOSIS_TYPES).dropna(subset=["icd9_code"])
    found = found.merge(stays[["hadm_id", "row"]], on="hadm_id").sort_values(
        ["row", "seq_num"], kind="stable"
    )
    step = found.groupby("row").cumcount().to_numpy(np.int64)
    row, name = found["row"].to_numpy(), category(found["icd9_code"]).to_numpy(dtype=np.str_)
    row, name, step = (one[step < MAX_CODES] for one in (row, name, step))
    known = np.unique(name[np.isin(row, train)])
    number = {one: code for code, one in enumerate(known.tolist(), start=1)}
    code = np.array([number.get(one, 0) for one in name.tolist()], dtype=np.int64)
    codes = np.zeros((len(stays), MAX_CODES), dtype=np.int64)
    codes[row, step] = code
    return Sequences(codes, np.bincount(row, minlength=len(stays))), _frequent(codes, len(known), train)


def category(codes: pd.Series[Any]) -> pd.Series[Any]:
    """The three-digit category of ICD-9 codes without their dot: 99591 ->
    995, V4581 -> V45, E8788 -> E878.
    """
    codes = codes.str.strip()
    return codes.str[:3].where(~codes.str.startswith("E"), codes.str[:4])


def _frequent(codes: Positions, known: int, train: Positions) -> NDArray[np.float32]:
    has = np.zeros((len(codes), known + 1), dtype=bool)
    np.put_along_axis(has, codes, True, axis=1)
    often = np.argsort(-has[train, 1:].sum(axis=0), kind="stable")[:WHOLE_CODES] + 1
    return has[:, np.sort(often)].astype(np.float32)
