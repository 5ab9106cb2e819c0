"""The data sets of the experiments: scikit-learn's own, and others from a folder, each checked as it is read.

``load("Wine")`` needs nothing. ``load("Adult")`` reads ``adult/adult.data`` and ``adult/adult.test`` below
the data folder: ``data_dir``, else the environment's ``GAL_DATA``. ``SOURCES`` says which files, with what
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

from gal.errors import InvalidInputError, InvalidOptionError
from gal_bench.data.sources import Source

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
    class_names: tuple[str, ...] = ()
    """What the codes stand for."""
    test: NDArray[np.int64] | None = None
    """Positions of the official test rows, where its makers named some."""
    partition: Partition | None = None
    """Columns that belong together, by who would hold them: the large sets."""


SOURCES = {
    "BostonHousing": Source(
        {
            "boston/boston_house_prices.csv": "d98212636026544fc9b9c0f372e5f819872e6fa6fa757ab025efdda22180f2d6"
        },
        "sklearn/datasets/data/ of scikit-learn 1.1 or older, https://pypi.org/project/scikit-learn/1.0.2 "
        "(Harrison and Rubinfeld 1978; free to use)",
    ),
    "QSAR": Source(
        {"biodeg/biodeg.csv": "7672fdf9e6c227c1e469120f016624eb0371abfae98bd9d48f76c4cbbcbf534f"},
        "UCI 'QSAR biodegradation', https://archive.ics.uci.edu/dataset/254 (CC BY 4.0)",
    ),
    "Adult": Source(
        {
            "adult/adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            "adult/adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        },
        "UCI 'Adult', https://archive.ics.uci.edu/dataset/2 (CC BY 4.0)",
    ),
    "CreditDefault": Source(
        {
            "credit_card_default/UCI_Credit_Card.csv": "1f30afeb75ab94cec42f5ee0c38bdc6c2526329a693e538392fb807b860c92b6"
        },
        "UCI 'Default of Credit Card Clients', https://archive.ics.uci.edu/dataset/350, saved as CSV with "
        "the "
        "columns' names in the first line (CC BY 4.0)",
    ),
    "Covertype": Source(
        {"covtype/covtype.data.gz": "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945"},
        "UCI 'Covertype', https://archive.ics.uci.edu/dataset/31 (CC BY 4.0)",
    ),
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
COVERTYPE_CLASSES = (
    *("Spruce/Fir", "Lodgepole Pine", "Ponderosa Pine", "Cottonwood/Willow"),
    *("Aspen", "Douglas-fir", "Krummholz"),
)

QSAR_COLUMNS = [
    *("SpMax_L", "J_Dz(e)", "nHM", "F01[N-N]", "F04[C-N]", "NssssC", "nCb-", "C%", "nCp", "nO", "F03[C-N]"),
    *("SdssC", "HyWi_B(m)", "LOC", "SM6_L", "F03[C-O]", "Me", "Mi", "nN-N", "nArNO2", "nCRX3", "SpPosA_B(p)"),
    *("nCIR", "B01[C-Br]", "B03[C-Cl]", "N-073", "SpMax_A", "Psi_i_1d", "B04[C-Br]", "SdO", "TI2_L", "nCrt"),
    *("C-026", "F02[C-N]", "nHDon", "SpMax_B(m)", "Psi_i_A", "nN", "SM6_B(m)", "nArCOOR", "nX"),
]


def load(name: str, data_dir: Path | str | None = None) -> Dataset:
    """One of ``DATASETS``; ``data_dir`` (else GAL_DATA) is the folder of those
    that scikit-learn does not ship.
    """
    if name not in DATASETS:
        raise InvalidOptionError(f"data set must be one of {', '.join(DATASETS)}, got {name!r}")
    return DATASETS[name](None if data_dir is None else Path(data_dir))


# --- shipped with scikit-learn


def _shipped(name: str, source: Callable[..., Any], *, classes: bool = True) -> Dataset:
    bunch = source(as_frame=True)
    y = bunch.target.to_numpy().astype(np.int64 if classes else np.float64)
    names = tuple(str(one) for one in bunch.target_names) if classes else ()
    return Dataset(name, bunch.data, y, classes, names)


def _blob() -> Dataset:
    """The paper's: 100 points of 10 features around 10 centres."""
    X, y = make_blobs(100, 10, centers=10, random_state=0)
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(10)])
    return Dataset("Blob", table, y.astype(np.int64), True, tuple(str(k) for k in range(10)))


# --- from the data folder


def _boston(data_dir: Path | None) -> Dataset:
    path = _find("BostonHousing", data_dir, "boston/boston_house_prices.csv")
    table = pd.read_csv(BytesIO(_checked("BostonHousing", path)), skiprows=1)
    y = table.pop("MEDV").to_numpy(np.float64)
    return Dataset("BostonHousing", table, y, classes=False)


def _qsar(data_dir: Path | None) -> Dataset:
    path = _find("QSAR", data_dir, "biodeg/biodeg.csv")
    table = _parsed("QSAR", path, sep=";", header=None)
    if table.shape != (1055, 42):
        raise _wrong("QSAR", path, "1055 rows of 42 columns", _shape(table))
    table.columns = pd.Index([*QSAR_COLUMNS, "class"])
    y = (table.pop("class") == "RB").to_numpy().astype(np.int64)
    _check_numbers("QSAR", path, table, y, "356 RB")
    return Dataset("QSAR", table, y, True, ("NRB", "RB"))


def _adult(data_dir: Path | None) -> Dataset:
    tables = []
    for file, skipped in (("adult/adult.data", 0), ("adult/adult.test", 1)):
        content = _checked("Adult", _find("Adult", data_dir, file))
        names = [*ADULT_COLUMNS, "income"]
        tables.append(
            pd.read_csv(BytesIO(content), names=names, skiprows=skipped, skipinitialspace=True, na_values="?")
        )
    table = pd.concat(tables, ignore_index=True)
    y = table.pop("income").str.startswith(">50K").to_numpy().astype(np.int64)
    test = np.arange(len(tables[0]), len(table))
    return Dataset("Adult", table, y, True, ("<=50K", ">50K"), test, ADULT_ORGANIZATIONS)


def _credit(data_dir: Path | None) -> Dataset:
    path = _find("CreditDefault", data_dir, "credit_card_default/UCI_Credit_Card.csv")
    table = _parsed("CreditDefault", path).drop(columns="ID", errors="ignore")
    table.columns = table.columns.str.replace(" ", ".")
    expected = [*CREDIT_COLUMNS, CREDIT_LABEL]
    if len(table) != 30_000 or list(table.columns) != expected:
        came = f"{_shape(table)}: {', '.join(table.columns[:30])}"
        raise _wrong("CreditDefault", path, f"30000 rows of 24 columns: {', '.join(expected)}", came)
    y = (table.pop(CREDIT_LABEL) == 1).to_numpy().astype(np.int64)
    _check_numbers("CreditDefault", path, table, y, "6636 defaults")
    return Dataset("CreditDefault", table, y, True, ("paid", "default"), partition=CREDIT_ORGANIZATIONS)


def _covertype(data_dir: Path | None) -> Dataset:
    """UCI's own gz, any other gz of the same content, or the content itself."""
    path = _find("Covertype", data_dir, "covtype/covtype.data.gz", "covtype/covtype.data")
    names = [*COVERTYPE_COLUMNS, "cover"]
    types = dict.fromkeys(COVERTYPE_COLUMNS, np.float32) | {"cover": np.int64}
    table = pd.read_csv(BytesIO(_checked("Covertype", path)), names=names, dtype=types)
    y = table.pop("cover").to_numpy() - 1
    return Dataset("Covertype", table, y, True, COVERTYPE_CLASSES, partition=COVERTYPE_ORGANIZATIONS)


DATASETS: dict[str, Callable[[Path | None], Dataset]] = {
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


# --- files


def _find(name: str, data_dir: Path | None, *files: str) -> Path:
    return SOURCES[name].find(name, data_dir, *files)


def _checked(name: str, path: Path) -> bytes:
    return SOURCES[name].read(name, path)


def _parsed(name: str, path: Path, **how: Any) -> pd.DataFrame:
    """A table that copies have in other words (quotes, 1 or 1.0, line ends): its
    numbers are checked afterwards.
    """
    try:
        table: pd.DataFrame = pd.read_csv(path, **how)
    except ValueError as error:  # pandas' and unicode's errors are such
        raise _wrong(name, path, "a table as text", str(error)) from error
    return table


def _check_numbers(name: str, path: Path, X: pd.DataFrame, y: NDArray[np.int64], labels: str) -> None:
    """``labels`` counts the positive ones, for people."""
    count, what = labels.split()
    if y.sum() != int(count):
        raise _wrong(name, path, labels, f"{y.sum()} {what}")
    text = [column for column in X if not pd.api.types.is_numeric_dtype(X[column].dtype)]
    if text:
        raise _wrong(name, path, "columns of numbers", f"text in {', '.join(map(str, text))}")
    values = (
        np.column_stack([X.to_numpy("<f4"), y.astype("<f4")]) + 0.0
    )  # float32: parsers differ in the last bit
    came, expected = hashlib.sha256(values.tobytes()).hexdigest(), SOURCES[name].checksum(path)
    if came != expected:
        raise _wrong(name, path, f"numbers with sha256 {expected}", f"others, with sha256 {came}")


def _shape(table: pd.DataFrame) -> str:
    return f"{table.shape[0]} rows of {table.shape[1]} columns"


def _wrong(name: str, path: Path, expected: str, came: str) -> InvalidInputError:
    return SOURCES[name].wrong(name, path, expected, came)
