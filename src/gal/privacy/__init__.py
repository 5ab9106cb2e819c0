"""Privacy: what may be known of the labels, and of an organization's answers, by whom.

Mechanisms with a guarantee (extra ``privacy``): `RandomisedResponse`, `LaplaceLabels` and `GaussianLabels`
make a noisy copy of the labels once; `LaplaceResiduals` and `GaussianResiduals` noise every residual. The
paper's own, `PaperLaplace` and `PaperInterval`, are for reproducing its tables and guarantee nothing.
"""

from gal.privacy.accounting.costs import Cost
from gal.privacy.mechanisms.contract import LabelMechanism, Mechanism, PaperMechanism, ResidualMechanism
from gal.privacy.mechanisms.labels import GaussianLabels, LaplaceLabels, RandomisedResponse
from gal.privacy.mechanisms.paper import PaperInterval, PaperLaplace
from gal.privacy.mechanisms.residuals import GaussianResiduals, LaplaceResiduals
from gal.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from gal.privacy.statements import Statement, statement

__all__ = [
    "Cost",
    "GaussianLabels",
    "GaussianResiduals",
    "LabelMechanism",
    "LaplaceLabels",
    "LaplaceResiduals",
    "Mechanism",
    "NoiseSource",
    "PaperInterval",
    "PaperLaplace",
    "PaperMechanism",
    "RandomisedResponse",
    "ResidualMechanism",
    "SeededNoise",
    "Statement",
    "SystemNoise",
    "statement",
]
