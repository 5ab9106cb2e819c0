"""The 4,000 stays of PhysioNet's 2012 challenge, set A, in the hands of four organizations.

The paper's case study uses MIMIC-III, which few may download; this open set asks the same two questions. It
has neither cultures nor diagnoses: "laboratory" takes the place of the paper's microbiology, and "treatment"
(how the patient is ventilated) that of the ICD codes. Numpy is all that is needed to read it.
"""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidOptionError
from gal_bench.data.medical.series import (
    MORTALITY,
    TASKS,
    Floats,
    HourlyGrid,
    Measure,
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

NAME = "PhysioNet2012"
HOURS = 48

STAYS, OUTCOMES = "physionet2012/set-a.tar.gz", "physionet2012/Outcomes-a.txt"
SOURCES = {
    NAME: Source(
        {
            STAYS: "f8ec6abeed54c68342872dd5688017ed9dadb59a4261be82e6e87c671bac6547",
            OUTCOMES: "2613ea60ccda29f87571a7d6b09ad130858a8ccd66325bd073365925026883c2",
        },
        "PhysioNet 'Predicting Mortality of ICU Patients: the PhysioNet/Computing in Cardiology Challenge "
        "2012', "
        "https://physionet.org/content/challenge-2012/1.0.0/ (ODC-By 1.0)",
    )
}
"""The checksum of the stays is that of their names and lines, because archives of the same files differ."""

LABORATORY = (
    Measure("Albumin", 0.5, 10),
    Measure("ALP", 1),
    Measure("ALT", 1),
    Measure("AST", 1),
    Measure("Bilirubin"),
    Measure("BUN"),
    Measure("Cholesterol", 1),
    Measure("Creatinine", 0.05, 50),
    Measure("Glucose", 5, 2500),
    Measure("HCO3", 1, 80),
    Measure("HCT", 5, 80),
    Measure("K", 1, 15),
    Measure("Lactate"),
    Measure("Mg", 0.1, 15),
    Measure("Na", 80, 200),
    Measure("Platelets", 1),
    Measure("TroponinI"),
    Measure("TroponinT"),
    Measure("WBC"),
    Measure("PaCO2", 5, 200),
    Measure("PaO2", 10, 700),
    Measure("pH", 6.5, 8.0),
)
BODY = (
    Measure("HR", 10, 300),
    Measure("SysABP", 20, 300),
    Measure("DiasABP", 10, 250),
    Measure("MAP", 10, 280),
    Measure("NISysABP", 20, 300),
    Measure("NIDiasABP", 10, 250),
    Measure("NIMAP", 10, 280),
    Measure("Temp", 25, 45),
    Measure("RespRate", 1, 90),
    Measure("SaO2", 20, 100),
    Measure("GCS", 3, 15),
    Measure("Urine", 0, 6000, summed=True),
    Measure("Weight", 20, 300),
)
TREATMENT = (Measure("MechVent", 1, 1), Measure("FiO2", 0.2, 1.0))
"""By organization, with the range outside of which a value is a slip: zeros for a pressure, pH 735, 0 F."""

ORGANIZATIONS = {"laboratory": LABORATORY, "body": BODY, "treatment": TREATMENT}
DESCRIPTORS = (
    Measure("Age", 15, 120),
    Measure("Gender", 0, 1),
    Measure("Height", 100, 230),
    Measure("Weight", 20, 300),
    Measure("ICUType", 1, 4),
)
"""Said once, at 00:00; -1 means unknown. Weight is also measured later: then it is the body's."""

PARAMETERS = tuple(sorted({one.name for one in (*LABORATORY, *BODY, *TREATMENT, *DESCRIPTORS)}))


def load_physionet(task: str, data_dir: Path | str | None = None, *, seed: int = 0) -> ViewSet:
    """``task`` is "mortality" (death in hospital, AUC) or "length of stay" (in days, MAD).

    Steps are the first 48 hours of the stay; a row ends after the last hour in which anybody measured
    anything. "laboratory" (the label holder), "body" and "treatment" are ``Sequences`` (n, 48, 2 *
    columns) float32: standardised values, carried forward, then whether each was measured in that
    hour. "demographics" is a table (n, 11) float32: age, gender, height and weight; whether the last
    three are known; the type of ICU.

    A fifth of the stays, drawn by ``seed``, is for the test, stratified by death for mortality; all
    statistics come from the other stays. The 60 stays of unknown length are left out of "length of stay".
    That is the time from admission to the ICU until leaving the hospital, in days; the paper's MIMICL is the
    time in the ICU, in hours, on all of MIMIC-III: their figures cannot be compared. The scores (SAPS-I,
    SOFA) and the survival that come with the labels are in no view.
    """
    if task not in TASKS:
        raise InvalidOptionError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
    stays = read_stays(None if data_dir is None else Path(data_dir))
    y = stays.died if task == MORTALITY else stays.days
    rows = np.flatnonzero(y >= 0)
    stays, y = stays.take(rows), y[rows]
    parts = split_rows(stays.record, seed, y if task == MORTALITY else None)
    views, whole = _views(stays, parts[0])
    name = f"{NAME} {task}"
    return as_view_set(name, task, views=views, whole=whole, y=y, parts=parts)


def _views(stays: Stays, train: Positions) -> tuple[dict[str, Any], Any]:
    """By organization, the label holder first, and all as one."""
    grids = {organization: stays.grid(measures) for organization, measures in ORGANIZATIONS.items()}
    lengths = lengths_of(list(grids.values()))
    series = {organization: sequence_view(grid, lengths, train) for organization, grid in grids.items()}
    demographics = _demographics(stays, train)
    whole = joined(list(series.values()), [demographics])
    return {
        "laboratory": series["laboratory"],
        "demographics": demographics,
        "body": series["body"],
        "treatment": series["treatment"],
    }, whole


def _demographics(stays: Stays, train: Positions) -> NDArray[np.float32]:
    numbers = {one.name: stays.descriptor(one) for one in DESCRIPTORS}
    unit = numbers.pop("ICUType")
    table = static_table(numbers, {}, train, may_lack=("Gender", "Height", "Weight"))
    return np.concatenate([table, unit[:, None] == np.arange(1, 5)], axis=1, dtype=np.float32)


# --- files


@dataclass(frozen=True, eq=False)
class Stays:
    """Everything that the files say; measurements are in arrays of one length, in the order of the files."""

    record: Positions
    """(stays,): rising."""
    died: Positions
    """(stays,): 0 or 1."""
    days: Positions
    """(stays,): length of stay, -1 where unknown."""
    stay: Positions
    """(measurements,): position of the stay in ``record``."""
    hour: Positions
    parameter: Positions
    """(measurements,): position in ``PARAMETERS``, -1 for what no view uses."""
    value: Floats
    described: NDArray[np.bool_]
    """(measurements,): said at admission about the patient, rather than measured."""

    def take(self, rows: Positions) -> Stays:
        """These stays only."""
        position = np.full(len(self.record), -1)
        position[rows] = np.arange(len(rows))
        kept = position[self.stay] >= 0
        return Stays(
            record=self.record[rows],
            died=self.died[rows],
            days=self.days[rows],
            stay=position[self.stay[kept]],
            hour=self.hour[kept],
            parameter=self.parameter[kept],
            value=self.value[kept],
            described=self.described[kept],
        )

    def grid(self, measures: Sequence[Measure]) -> HourlyGrid:
        """Hour by hour, for an organization."""
        grid = HourlyGrid(measures, len(self.record), HOURS)
        for column, measure in enumerate(measures):
            at = np.flatnonzero((self.parameter == PARAMETERS.index(measure.name)) & ~self.described)
            grid.add(self.stay[at], self.hour[at], np.full(len(at), column), self.value[at])
        return grid

    def descriptor(self, measure: Measure) -> Floats:
        """(stays,): NaN where it is unknown or cannot be believed."""
        at = np.flatnonzero((self.parameter == PARAMETERS.index(measure.name)) & self.described)
        at = at[(self.value[at] >= measure.low) & (self.value[at] <= measure.high)]
        found = np.full(len(self.record), np.nan)
        found[self.stay[at]] = self.value[at]
        return found


def read_stays(data_dir: Path | None) -> Stays:
    """Both files, checked."""
    source = SOURCES[NAME]
    path, outcomes = source.find(NAME, data_dir, STAYS), source.find(NAME, data_dir, OUTCOMES)
    lines = source.read(NAME, outcomes).decode().splitlines()
    labels = np.array([[int(cell) for cell in line.split(",")] for line in lines[1:]])
    labels = labels[np.argsort(labels[:, 0])]
    names = lines[0].split(",")
    record, days, died = (
        labels[:, names.index(name)] for name in ("RecordID", "Length_of_stay", "In-hospital_death")
    )
    texts = _texts(source, path)
    if [int(name) for name in texts] != record.tolist():
        raise source.wrong(NAME, path, f"the {len(record)} stays of {OUTCOMES}", f"{len(texts)} others")
    return Stays(record, died, days, *_parsed(list(texts.values())))


def _texts(source: Source, path: Path) -> dict[str, str]:
    """By record, in rising order, without the first line."""
    found: dict[str, str] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.name.endswith(".txt") else None
                if content is not None:
                    found[PurePosixPath(member.name).stem] = "\n".join(content.read().decode().splitlines())
    except (tarfile.TarError, OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise source.wrong(NAME, path, "a whole tar.gz file", str(error)) from error
    found = dict(sorted(found.items()))
    came, expected = stays_checksum(found), source.files[STAYS]
    if came != expected:
        raise source.wrong(
            NAME, path, f"stays with sha256 {expected}", f"{len(found)} stays with sha256 {came}"
        )
    return {name: text.partition("\n")[2] for name, text in found.items()}


def stays_checksum(texts: dict[str, str]) -> str:
    """Of names and lines, the same for every archive of the same files."""
    said = hashlib.sha256()
    for name, text in sorted(texts.items()):
        said.update(f"{name}\n{text}\n".encode())
    return said.hexdigest()


def _parsed(texts: Sequence[str]) -> tuple[Positions, Positions, Positions, Floats, NDArray[np.bool_]]:
    """Of lines like ``07:35,HR,73``: stay, hour, parameter, value, and whether the patient is described."""
    stay = np.repeat(np.arange(len(texts)), [text.count("\n") + 1 if text else 0 for text in texts])
    cells = (
        "\n".join(text for text in texts if text).replace("\n", ",").split(",")
    )  # one pass: 1.8 million lines
    times = cells[0::3] if len(cells) > 1 else []
    hours = {time: int(time[:2]) for time in set(times)}
    codes = {name: code for code, name in enumerate(PARAMETERS)}
    hour = np.array([hours[time] for time in times], dtype=np.int64)
    parameter = np.array([codes.get(name, -1) for name in cells[1::3]], dtype=np.int64)
    value = np.array([float(cell) for cell in cells[2::3]], dtype=np.float64)
    admission = np.array([time == "00:00" for time in times], dtype=bool)
    described = admission & np.isin(parameter, [codes[one.name] for one in DESCRIPTORS])
    return stay, hour, parameter, value, described
