"""The leak meter: attacks on the messages of a task, before and after it.

``Transcript`` collects messages, ``plant_canaries`` draws labels that only a message can reveal,
``measure_leakage`` attacks, and a ``LeakReport`` has the share of correct guesses of each attack, with its
meaning.
"""

from gal.privacy.leakage.meter import Canaries, measure_leakage, plant_canaries
from gal.privacy.leakage.reconstruction import (
    Explained,
    Reconstruction,
    columns_from_replies,
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
    "columns_from_replies",
    "columns_from_residuals",
    "equivalent_epsilon",
    "measure_leakage",
    "plant_canaries",
]
