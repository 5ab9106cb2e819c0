"""PhysioNet's 2012 challenge, set A: 4,000 stays as time series of four organizations.

The paper's case study uses MIMIC-III, which few may download; of this open set the same two questions are
posed, with "laboratory" for the paper's microbiology and "treatment" (ventilation) for the ICD codes. Limits
and means are learned from the training rows.
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

from gal.models.sequences import Sequences
from gal_bench.data.sources import Source, ViewSet

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

NAME = "PhysioNet2012"
HOURS = 48
TEST_SHARE = 0.2
STAYS, OUTCOMES = "physionet2012/set-a.tar.gz", "physionet2012/Outcomes-a.txt"
SOURCES = {
    NAME: Source(
        NAME,
        {
            STAYS: "f8ec6abeed54c68342872dd5688017ed9dadb59a4261be82e6e87c671bac6547",
            OUTCOMES: "2613ea60ccda29f87571a7d6b09ad130858a8ccd66325bd073365925026883c2",
        },
        "PhysioNet 'Predicting Mortality of ICU Patients: the PhysioNet/Computing in Cardiology Challenge "
        "2012', https://physionet.org/content/challenge-2012/1.0.0/ (ODC-By 1.0)",
    )
}
"""The checksum of the stays is that of their names and lines, because archives of the same files differ."""


def _limits(text: str) -> dict[str, tuple[float, float]]:
    """Of "NAME LOW HIGH" or "NAME LOW", with commas between: outside of this range a value is a slip (zeros
    for a pressure, pH 735, 0 F).
    """
    words = [one.split() for one in text.split(",")]
    return {name: (float(low), float(high[0]) if high else np.inf) for name, low, *high in words}


SEQUENCES = {
    "laboratory": _limits(
        "Albumin 0.5 10, ALP 1, ALT 1, AST 1, Bilirubin 0, BUN 0, Cholesterol 1, Creatinine 0.05 50, "
        "Glucose 5 2500, HCO3 1 80, HCT 5 80, K 1 15, Lactate 0, Mg 0.1 15, Na 80 200, Platelets 1, "
        "TroponinI 0, TroponinT 0, WBC 0, PaCO2 5 200, PaO2 10 700, pH 6.5 8"
    ),
    "body": _limits(
        "HR 10 300, SysABP 20 300, DiasABP 10 250, MAP 10 280, NISysABP 20 300, NIDiasABP 10 250, "
        "NIMAP 10 280, Temp 25 45, RespRate 1 90, SaO2 20 100, GCS 3 15, Urine 0 6000, Weight 20 300"
    ),
    "treatment": _limits("MechVent 1 1, FiO2 0.2 1"),
}
"""By organization: its measures."""
SUMMED = ("Urine",)
"""Several values of one hour add up; others are averaged."""
DESCRIPTORS = _limits("Age 15 120, Gender 0 1, Height 100 230, Weight 20 300, ICUType 1 4")
"""Said once, at 00:00; -1 means unknown. Weight is also measured later: then it is the body's."""
PARAMETERS = sorted({name for some in (*SEQUENCES.values(), DESCRIPTORS) for name in some})


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
    stays = read_stays(data_dir)
    died = task == "mortality"
    labels = stays.died if died else stays.days
    rows = np.flatnonzero(labels >= 0)
    y = labels[rows].astype(np.int64 if died else np.float64)
    train, test = split_rows(y, seed, classes=died)
    views, whole = _views(stays, rows, train)
    return ViewSet(
        f"{NAME} {task}",
        train={organization: view[train] for organization, view in views.items()},
        y_train=y[train],
        test={organization: view[test] for organization, view in views.items()},
        y_test=y[test],
        metric="auc" if died else "mad",
        whole_train=whole[train],
        whole_test=whole[test],
    )


def split_rows(y: NDArray[Any], seed: int, *, classes: bool) -> tuple[Positions, Positions]:
    """Positions of the training and of the test rows, both rising; a fifth of each class is for the test."""
    stratum = y if classes else np.zeros(len(y), dtype=np.int64)
    rng, tested = np.random.default_rng(seed), np.zeros(len(y), dtype=bool)
    for one in np.unique(stratum):
        drawn = rng.permutation(np.flatnonzero(stratum == one))
        tested[drawn[: round(TEST_SHARE * len(drawn))]] = True
    return np.flatnonzero(~tested), np.flatnonzero(tested)


# --- views


def _views(stays: Stays, rows: Positions, train: Positions) -> tuple[dict[str, Any], Sequences]:
    """The views of these stays by organization, the label holder first, and all as one."""
    grids = {name: stays.hourly(limits, rows) for name, limits in SEQUENCES.items()}
    measured = np.concatenate([seen for _, seen in grids.values()], axis=2).any(axis=2)
    lengths: Positions = (measured * np.arange(1, HOURS + 1)).max(axis=1, initial=0)
    series = {name: _sequence(values, seen, lengths, train) for name, (values, seen) in grids.items()}
    demographics = _demographics(stays, rows, train)
    repeated = np.broadcast_to(demographics[:, None, :], (len(rows), HOURS, demographics.shape[1]))
    everything = [*(one.values for one in series.values()), repeated]
    # A row without a measurement has one step here, for what its table says about it.
    whole = Sequences(np.concatenate(everything, axis=2, dtype=np.float32), np.maximum(lengths, 1))
    order = ("laboratory", "demographics", "body", "treatment")
    return {name: (series | {"demographics": demographics})[name] for name in order}, whole


def _sequence(values: Floats, measured: NDArray[np.bool_], lengths: Positions, train: Positions) -> Sequences:
    """(rows, hours, 2 * columns) float32: standardised values, then whether each was measured.

    A value is carried forward until the next one; before the first it is 0, the training rows' mean.
    """
    filled = _standardised(values, train)
    for hour in range(1, filled.shape[1]):
        now = filled[:, hour]
        np.copyto(now, filled[:, hour - 1], where=np.isnan(now))
    both = np.concatenate([np.nan_to_num(filled), measured], axis=2, dtype=np.float32)
    both[np.arange(both.shape[1]) >= lengths[:, None]] = 0.0
    return Sequences(both, lengths)


def _demographics(stays: Stays, rows: Positions, train: Positions) -> NDArray[np.float32]:
    """Numbers standardised, 0 where unknown; whether those that may lack are known; the type of ICU."""
    numbers = {name: stays.descriptor(name)[rows] for name in DESCRIPTORS}
    unit = numbers.pop("ICUType")
    columns = [np.nan_to_num(_standardised(np.column_stack(list(numbers.values())), train))]
    columns += [~np.isnan(numbers[name])[:, None] for name in ("Gender", "Height", "Weight")]
    columns.append(unit[:, None] == np.arange(1, 5))
    return np.concatenate(columns, axis=1, dtype=np.float32)


def _standardised(values: Floats, train: Positions) -> Floats:
    """Cut at the training rows' 1st and 99th percentile, then with their mean and spread; NaN stays.

    A column with one value only (MechVent is always 1) becomes 1, so that it differs from the 0 of what was
    never measured; a column without any value is always 0.
    """
    found = np.empty_like(values)
    for column in range(values.shape[-1]):
        known = values[train][..., column]
        known = known[~np.isnan(known)]
        low, high = np.percentile(known, [1, 99]) if known.size else (0.0, 0.0)
        cut = np.clip(known, low, high)
        mean, spread = (0.0, abs(low) or 1.0) if low == high else (cut.mean(), cut.std())
        found[..., column] = (np.clip(values[..., column], low, high) - mean) / spread
    return found


# --- files


@dataclass(frozen=True, eq=False)
class Stays:
    """Everything that the files say; measurements are in arrays of one length, in the order of the files."""

    died: Positions
    """(stays,): 0 or 1."""
    days: Positions
    """(stays,): length of stay, -1 where unknown."""
    stay: Positions
    """(measurements,): position of the stay."""
    hour: Positions
    parameter: Positions
    """(measurements,): position in ``PARAMETERS``, -1 for what no view uses."""
    value: Floats
    described: NDArray[np.bool_]
    """(measurements,): facts of the admission, rather than measurements."""

    def hourly(
        self, limits: dict[str, tuple[float, float]], rows: Positions
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """The mean, or the sum, of each hour of these stays (rows, hours, measures), NaN where nothing was
        measured; and whether anything was.
        """
        shape = (len(self.died), HOURS, len(limits))
        sums, counts = np.zeros(shape), np.zeros(shape, dtype=np.int32)
        for column, (name, range_) in enumerate(limits.items()):
            at = self._of(name, range_) & ~self.described & (self.hour < HOURS)
            np.add.at(sums[..., column], (self.stay[at], self.hour[at]), self.value[at])
            np.add.at(counts[..., column], (self.stay[at], self.hour[at]), 1)
        parts = np.where([name in SUMMED for name in limits], np.minimum(counts, 1), counts)
        return np.where(parts > 0, sums / np.maximum(parts, 1), np.nan)[rows], (counts > 0)[rows]

    def descriptor(self, name: str) -> Floats:
        """(stays,): NaN where it is unknown or cannot be believed."""
        at = self._of(name, DESCRIPTORS[name]) & self.described
        found = np.full(len(self.died), np.nan)
        found[self.stay[at]] = self.value[at]
        return found

    def _of(self, name: str, limits: tuple[float, float]) -> NDArray[np.bool_]:
        """Its values that can be believed."""
        believed = (self.value >= limits[0]) & (self.value <= limits[1])
        return np.asarray(believed & (self.parameter == PARAMETERS.index(name)))


def read_stays(data_dir: Path | str | None) -> Stays:
    """Both files, checked."""
    source = SOURCES[NAME]
    path = source.find(data_dir, STAYS)
    lines = source.read(data_dir, OUTCOMES).decode().splitlines()
    labels = np.array([[int(cell) for cell in line.split(",")] for line in lines[1:]])
    labels = labels[np.argsort(labels[:, 0])]  # by record, as the texts are
    days, died = (
        labels[:, lines[0].split(",").index(name)] for name in ("Length_of_stay", "In-hospital_death")
    )
    found: dict[str, str] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.name.endswith(".txt") else None
                if content is not None:
                    found[PurePosixPath(member.name).stem] = "\n".join(content.read().decode().splitlines())
    except (tarfile.TarError, OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise source.wrong(path, "a whole tar.gz file", str(error)) from error
    if (came := stays_checksum(found)) != source.files[STAYS]:
        expected = f"stays with sha256 {source.files[STAYS]}"
        raise source.wrong(path, expected, f"{len(found)} stays with sha256 {came}")
    return Stays(died, days, *_parsed([text.partition("\n")[2] for _, text in sorted(found.items())]))


def stays_checksum(texts: dict[str, str]) -> str:
    """A checksum of names and lines, the same for every archive of the same files."""
    hashed = hashlib.sha256()
    for name, text in sorted(texts.items()):
        hashed.update(f"{name}\n{text}\n".encode())
    return hashed.hexdigest()


def _parsed(texts: Sequence[str]) -> tuple[Positions, Positions, Positions, Floats, NDArray[np.bool_]]:
    """Lines like ``07:35,HR,73`` as stay, hour, parameter, value, and whether the patient is described."""
    stay = np.repeat(np.arange(len(texts)), [text.count("\n") + 1 if text else 0 for text in texts])
    # One pass: 1.8 million lines.
    cells = "\n".join(text for text in texts if text).replace("\n", ",").split(",")
    times = cells[0::3] if len(cells) > 1 else []
    hours = {time: int(time[:2]) for time in set(times)}
    codes = {name: code for code, name in enumerate(PARAMETERS)}
    hour = np.array([hours[time] for time in times], dtype=np.int64)
    parameter = np.array([codes.get(name, -1) for name in cells[1::3]], dtype=np.int64)
    value = np.array([float(cell) for cell in cells[2::3]], dtype=np.float64)
    admission = np.array([time == "00:00" for time in times], dtype=bool)
    described = admission & np.isin(parameter, [codes[name] for name in DESCRIPTORS])
    return stay, hour, parameter, value, described
