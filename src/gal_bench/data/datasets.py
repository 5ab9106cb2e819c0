"""The data sets of the experiments: scikit-learn's own, and others from a folder.

``load("Wine")`` needs nothing; ``load("Adult")`` reads ``adult/adult.data`` and ``adult/adult.test`` below
the data folder: ``data_dir``, else the environment's ``GAL_DATA``. ``SOURCES`` has the files, their
checksums, and where to get them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine, make_blobs

from gal.errors import InvalidOptionError
from gal_bench.data.sources import Source

Folder = Path | str | None
"""Of the data; None: the environment's GAL_DATA."""
Partition = dict[str, list[str]]
"""The columns of each organization; the first is the label holder."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table with its labels; row ``i`` of ``X`` has index ``i``."""

    name: str
    X: pd.DataFrame
    y: NDArray[Any]
    """Shape (rows,): float64, or int64 codes 0, 1, ... of the classes."""
    classes: bool
    test: NDArray[np.int64] | None = None
    """Positions of the official test rows, where its makers named some."""
    partition: Partition | None = None
    """Columns that belong together, by who would hold them: the large sets."""


SOURCES = {
    one.name: one
    for one in (
        Source(
            "BostonHousing",
            {
                "boston/boston_house_prices.csv": "d98212636026544fc9b9c0f372e5f819872e6fa6fa757ab025efdda22180f2d6"
            },
            "sklearn/datasets/data/ of scikit-learn 1.1 or older, https://pypi.org/project/scikit-learn/1.0.2 "
            "(Harrison and Rubinfeld 1978; free to use)",
        ),
        Source(
            "QSAR",
            {"biodeg/biodeg.csv": "7672fdf9e6c227c1e469120f016624eb0371abfae98bd9d48f76c4cbbcbf534f"},
            "UCI 'QSAR biodegradation', https://archive.ics.uci.edu/dataset/254 (CC BY 4.0)",
        ),
        Source(
            "Adult",
            {
                "adult/adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
                "adult/adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            },
            "UCI 'Adult', https://archive.ics.uci.edu/dataset/2 (CC BY 4.0)",
        ),
        Source(
            "CreditDefault",
            {
                "credit_card_default/UCI_Credit_Card.csv": "1f30afeb75ab94cec42f5ee0c38bdc6c2526329a693e538392fb807b860c92b6"
            },
            "UCI 'Default of Credit Card Clients', https://archive.ics.uci.edu/dataset/350, saved as CSV with "
            "the columns' names in the first line (CC BY 4.0)",
        ),
        Source(
            "Covertype",
            {"covtype/covtype.data.gz": "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945"},
            "UCI 'Covertype', https://archive.ics.uci.edu/dataset/31 (CC BY 4.0)",
        ),
    )
}

ADULT_COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
]
ADULT_ORGANIZATIONS = {
    "census office": ["age", "sex", "race", "native-country", "marital-status", "relationship"],
    "school": ["education", "education-num"],
    "employer": ["workclass", "occupation", "hours-per-week"],
    "tax office": ["capital-gain", "capital-loss", "fnlwgt"],
}

CREDIT_ORGANIZATIONS = {
    "bank": ["LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"],
    "card processor": [f"PAY_{month}" for month in (0, 2, 3, 4, 5, 6)],
    "billing": [f"BILL_AMT{month}" for month in range(1, 7)],
    "payments": [f"PAY_AMT{month}" for month in range(1, 7)],
}
CREDIT_COLUMNS = [column for columns in CREDIT_ORGANIZATIONS.values() for column in columns]
CREDIT_LABEL = "default.payment.next.month"

COVERTYPE_ORGANIZATIONS = {
    "land office": [f"Wilderness_Area_{i}" for i in range(4)] + [f"Soil_Type_{i}" for i in range(40)],
    "terrain survey": [
        *("Elevation", "Aspect", "Slope"),
        *("Hillshade_9am", "Hillshade_Noon", "Hillshade_3pm"),
    ],
    "water authority": ["Horizontal_Distance_To_Hydrology", "Vertical_Distance_To_Hydrology"],
    "roads and fire service": ["Horizontal_Distance_To_Roadways", "Horizontal_Distance_To_Fire_Points"],
}
"""The label holder keeps the forest's register: which land is protected, and what the soil is."""

COVERTYPE_COLUMNS = [
    *("Elevation", "Aspect", "Slope"),
    *("Horizontal_Distance_To_Hydrology", "Vertical_Distance_To_Hydrology"),
    *("Horizontal_Distance_To_Roadways", "Hillshade_9am", "Hillshade_Noon", "Hillshade_3pm"),
    "Horizontal_Distance_To_Fire_Points",
    *COVERTYPE_ORGANIZATIONS["land office"],
]
QSAR_COLUMNS = [
    *("SpMax_L", "J_Dz(e)", "nHM", "F01[N-N]", "F04[C-N]", "NssssC", "nCb-", "C%", "nCp", "nO", "F03[C-N]"),
    *("SdssC", "HyWi_B(m)", "LOC", "SM6_L", "F03[C-O]", "Me", "Mi", "nN-N", "nArNO2", "nCRX3", "SpPosA_B(p)"),
    *("nCIR", "B01[C-Br]", "B03[C-Cl]", "N-073", "SpMax_A", "Psi_i_1d", "B04[C-Br]", "SdO", "TI2_L", "nCrt"),
    *("C-026", "F02[C-N]", "nHDon", "SpMax_B(m)", "Psi_i_A", "nN", "SM6_B(m)", "nArCOOR", "nX"),
]


def load(name: str, data_dir: Folder = None) -> Dataset:
    """One of ``DATASETS``; ``data_dir`` (else GAL_DATA) is the folder of those
    that scikit-learn does not ship.
    """
    if name not in DATASETS:
        raise InvalidOptionError(f"data set must be one of {', '.join(DATASETS)}, got {name!r}")
    return DATASETS[name](data_dir)


# --- shipped with scikit-learn


def _shipped(name: str, source: Callable[..., Any], *, classes: bool = True) -> Dataset:
    bunch = source(as_frame=True)
    y = bunch.target.to_numpy().astype(np.int64 if classes else np.float64)
    return Dataset(name, bunch.data, y, classes)


def _blob() -> Dataset:
    """The paper's: 100 points of 10 features around 10 centres."""
    X, y = make_blobs(100, 10, centers=10, random_state=0)
    return Dataset("Blob", pd.DataFrame(X, columns=[f"x{j}" for j in range(10)]), y.astype(np.int64), True)


# --- from the data folder


def _boston(data_dir: Folder) -> Dataset:
    content = SOURCES["BostonHousing"].read(data_dir, "boston/boston_house_prices.csv")
    table = pd.read_csv(BytesIO(content), skiprows=1)
    y = table.pop("MEDV").to_numpy(np.float64)
    return Dataset("BostonHousing", table, y, classes=False)


def _qsar(data_dir: Folder) -> Dataset:
    how: dict[str, Any] = {"sep": ";", "header": None, "names": [*QSAR_COLUMNS, "class"]}
    return Dataset("QSAR", *_checked_numbers("QSAR", data_dir, QSAR_COLUMNS, ("class", "RB"), **how), True)


def _adult(data_dir: Folder) -> Dataset:
    tables = []
    for file, skipped in (("adult/adult.data", 0), ("adult/adult.test", 1)):
        content, names = SOURCES["Adult"].read(data_dir, file), [*ADULT_COLUMNS, "income"]
        tables.append(
            pd.read_csv(BytesIO(content), names=names, skiprows=skipped, skipinitialspace=True, na_values="?")
        )
    table = pd.concat(tables, ignore_index=True)
    y = table.pop("income").str.startswith(">50K").to_numpy().astype(np.int64)
    return Dataset("Adult", table, y, True, np.arange(len(tables[0]), len(table)), ADULT_ORGANIZATIONS)


def _credit(data_dir: Folder) -> Dataset:
    X, y = _checked_numbers("CreditDefault", data_dir, CREDIT_COLUMNS, (CREDIT_LABEL, 1))
    return Dataset("CreditDefault", X, y, True, partition=CREDIT_ORGANIZATIONS)


def _covertype(data_dir: Folder) -> Dataset:
    """UCI's own gz, any other gz of the same content, or the content itself."""
    content = SOURCES["Covertype"].read(data_dir, "covtype/covtype.data.gz", "covtype/covtype.data")
    names = [*COVERTYPE_COLUMNS, "cover"]
    types = dict.fromkeys(COVERTYPE_COLUMNS, np.float32) | {"cover": np.int64}
    table = pd.read_csv(BytesIO(content), names=names, dtype=types)
    y = table.pop("cover").to_numpy() - 1
    return Dataset("Covertype", table, y, True, partition=COVERTYPE_ORGANIZATIONS)


def _checked_numbers(
    name: str, data_dir: Folder, columns: list[str], positive: tuple[str, Any], **how: Any
) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Columns and labels of a file that copies have in other words (quotes, 1 or 1.0, line ends): its
    numbers are checked, not its text. ``positive``: the column of the labels, and what is 1 there.
    """
    source, (label, one) = SOURCES[name], positive
    path = source.find(data_dir, *source.files)
    try:
        table = pd.read_csv(path, **how)
        table.columns = table.columns.str.replace(" ", ".")
        X, y = table[columns], (table[label] == one).to_numpy().astype(np.int64)
        values = np.column_stack([X.to_numpy("<f4"), y.astype("<f4")]) + 0.0  # parsers differ in the last bit
    except (ValueError, KeyError) as error:  # pandas' and unicode's errors are such
        raise source.wrong(path, "a table of numbers with the known columns", str(error)) from error
    [expected], came = source.files.values(), hashlib.sha256(values.tobytes()).hexdigest()
    if came != expected:
        raise source.wrong(path, f"numbers with sha256 {expected}", f"{len(X)} rows with sha256 {came}")
    return X, y


DATASETS: dict[str, Callable[[Folder], Dataset]] = {
    "Diabetes": lambda _: _shipped("Diabetes", load_diabetes, classes=False),
    "BostonHousing": _boston,
    "Blob": lambda _: _blob(),
    "Iris": lambda _: _shipped("Iris", load_iris),
    "Wine": lambda _: _shipped("Wine", load_wine),
    "BreastCancer": lambda _: _shipped("BreastCancer", load_breast_cancer),
    "QSAR": _qsar,
    "Adult": _adult,
    "CreditDefault": _credit,
    "Covertype": _covertype,
}
"""Loaders by name; each gets the data folder."""
