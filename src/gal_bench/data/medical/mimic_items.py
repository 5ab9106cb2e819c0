"""What MIMIC-III calls the measurements that the views use: numbers of its items, units, ranges.

The two charting systems number the same measurement differently: MetaVision from 220000 on, CareVue below.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gal_bench.data.medical.series import Floats, Measure

Items = Mapping[Measure, tuple[int, ...]]
"""Columns of a view in their order, and the items that are one of them."""

TEMPERATURE = Measure("temperature (C)", 25, 45)

BODY: Items = {
    Measure("heart rate (1/min)", 10, 300): (211, 220045),
    Measure("systolic blood pressure (mmHg)", 20, 300): (51, 442, 455, 6701, 220050, 220179),
    Measure("diastolic blood pressure (mmHg)", 10, 250): (8368, 8440, 8441, 8555, 220051, 220180),
    Measure("mean blood pressure (mmHg)", 10, 280): (52, 443, 456, 6702, 220052, 220181, 225312),
    Measure("respiratory rate (1/min)", 1, 90): (615, 618, 220210, 224690),
    TEMPERATURE: (676, 678, 223761, 223762),
    Measure("SpO2 (%)", 20, 100): (646, 220277),
    Measure("glucose (mg/dL)", 5, 2500): (807, 811, 1529, 3744, 3745, 220621, 225664, 226537),
    Measure("GCS eyes", 1, 4): (184, 220739),
    Measure("GCS words", 1, 5): (723, 223900),
    Measure("GCS movement", 1, 6): (454, 223901),
    Measure("weight (kg)", 20, 400): (762, 763, 224639, 226512, 226531),
    Measure("height (cm)", 100, 230): (920, 1394, 226707, 226730),
}
"""CHARTEVENTS."""

FACTORS = {226531: 0.45359237, 920: 2.54, 1394: 2.54, 226707: 2.54}
"""Items in pounds and inches, to kg and cm."""

LABORATORY: Items = {
    Measure("albumin (g/dL)", 0.5, 10): (50862,),
    Measure("alkaline phosphatase (IU/L)", 1): (50863,),
    Measure("ALT (IU/L)", 1): (50861,),
    Measure("AST (IU/L)", 1): (50878,),
    Measure("anion gap (mEq/L)", -20, 80): (50868,),
    Measure("bicarbonate (mEq/L)", 1, 80): (50882,),
    Measure("bilirubin (mg/dL)", 0, 100): (50885,),
    Measure("calcium (mg/dL)", 1, 25): (50893,),
    Measure("chloride (mEq/L)", 50, 200): (50806, 50902),
    Measure("creatinine (mg/dL)", 0.05, 50): (50912,),
    Measure("glucose (mg/dL)", 5, 2500): (50809, 50931),
    Measure("hematocrit (%)", 5, 80): (50810, 51221),
    Measure("hemoglobin (g/dL)", 1, 30): (50811, 51222),
    Measure("INR", 0.3, 50): (51237,),
    Measure("lactate (mmol/L)", 0, 50): (50813,),
    Measure("magnesium (mg/dL)", 0.1, 15): (50960,),
    Measure("pCO2 (mmHg)", 5, 250): (50818,),
    Measure("pH", 6.5, 8.0): (50820,),
    Measure("phosphate (mg/dL)", 0, 30): (50970,),
    Measure("platelets (K/uL)", 1, 5000): (51265,),
    Measure("pO2 (mmHg)", 10, 800): (50821,),
    Measure("potassium (mEq/L)", 1, 15): (50822, 50971),
    Measure("PTT (s)", 5, 300): (51275,),
    Measure("sodium (mEq/L)", 80, 200): (50824, 50983),
    Measure("troponin T (ng/mL)", 0, 100): (51003,),
    Measure("urea nitrogen (mg/dL)", 0, 400): (51006,),
    Measure("white cells (K/uL)", 0, 1000): (51300, 51301),
}
"""LABEVENTS; of blood."""

CULTURES = (
    Measure("blood culture"),
    Measure("urine culture"),
    Measure("airway culture"),
    Measure("other culture"),
    Measure("resistance"),
)
"""MICROBIOLOGYEVENTS: measured where a specimen was taken, 1 where something grew; for resistance, measured
where an antibiotic was tried, 1 where it did not work fully."""

SPECIMENS = {
    "blood culture": ("BLOOD",),
    "urine culture": ("URINE",),
    "airway culture": ("SPUTUM", "BAL", "BRONCH", "TRACHEAL", "RESPIRATORY"),
}
"""Words in a specimen's name; the first that fits counts, and what fits none is another culture."""


def in_our_units(item: NDArray[np.int64], value: Floats, column: NDArray[np.int64]) -> Floats:
    """Values of BODY's items in the units that its columns name.

    Temperatures are told apart by their size, not by the item: some are charted under the other one, and no
    living patient has a temperature that fits both.
    """
    found = value.copy()
    for one, factor in FACTORS.items():
        found[item == one] *= factor
    hot = (column == list(BODY).index(TEMPERATURE)) & (found > 70)
    found[hot] = (found[hot] - 32) / 1.8
    return found


def specimen_column(name: str) -> int:
    """Position in CULTURES."""
    for column, words in enumerate(SPECIMENS.values()):
        if any(word in name.upper() for word in words):
            return column
    return len(SPECIMENS)
