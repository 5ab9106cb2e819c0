"""Privacy: what may be known of the labels, and of an organization's answers, by whom.

Mechanisms with a guarantee (extra ``privacy``): `RandomisedResponse`, `LaplaceLabels` and `GaussianLabels` make a noisy copy
of the labels once; `LaplaceResiduals` and `GaussianResiduals` noise every residual. The paper's own, `PaperLaplace` and
`PaperInterval`, are for reproducing its tables and guarantee nothing.
"""

from gal.privacy.costs import Cost
from gal.privacy.labels import GaussianLabels, LabelMechanism, LaplaceLabels, RandomisedResponse
from gal.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from gal.privacy.paper import Mechanism, PaperInterval, PaperLaplace
from gal.privacy.residuals import GaussianResiduals, LaplaceResiduals, ResidualMechanism
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
    "RandomisedResponse",
    "ResidualMechanism",
    "SeededNoise",
    "Statement",
    "SystemNoise",
    "statement",
]
