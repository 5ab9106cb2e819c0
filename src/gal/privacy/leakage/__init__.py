"""The leak meter: attacks on what was really sent, by the label holder, before a task
(``gal leakage``) and after it.

``Transcript`` collects messages, ``plant_canaries`` draws labels that nobody can know but from a message,
``measure_leakage`` attacks, and a ``LeakReport`` says how often each attack was right, and what that means.
"""

from gal.privacy.leakage.meter import Canaries, measure_leakage, plant_canaries
from gal.privacy.leakage.reconstruction import (
    Explained,
    Reconstruction,
    columns_from_answers,
    columns_from_residuals,
)
from gal.privacy.leakage.report import (
    AttackResult,
    LeakReport,
    Share,
    added_reports,
    best_guess,
    equivalent_epsilon,
)
from gal.privacy.leakage.transcript import SentRows, Transcript

__all__ = [
    "AttackResult",
    "Canaries",
    "Explained",
    "LeakReport",
    "Reconstruction",
    "SentRows",
    "Share",
    "Transcript",
    "added_reports",
    "best_guess",
    "columns_from_answers",
    "columns_from_residuals",
    "equivalent_epsilon",
    "measure_leakage",
    "plant_canaries",
]
