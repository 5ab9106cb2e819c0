"""Privacy: what may be known of the labels, and of an organization's answers, by whom.

Mechanisms with a guarantee (extra ``privacy``): `RandomisedResponse`, `LaplaceLabels` and `GaussianLabels`
make a noisy copy of the labels once; `LaplaceResiduals` and `GaussianResiduals` noise every residual. The
paper's own, `PaperLaplace` and `PaperInterval`, are for reproducing its tables and guarantee nothing.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from gal.on_demand import on_demand as _on_demand

if _TYPE_CHECKING:
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

__getattr__, __dir__ = _on_demand(
    __name__,
    globals(),
    {
        "Cost": "accounting.costs",
        "GaussianLabels": "mechanisms.labels",
        "GaussianResiduals": "mechanisms.residuals",
        "LabelMechanism": "mechanisms.contract",
        "LaplaceLabels": "mechanisms.labels",
        "LaplaceResiduals": "mechanisms.residuals",
        "Mechanism": "mechanisms.contract",
        "NoiseSource": "noise",
        "PaperInterval": "mechanisms.paper",
        "PaperLaplace": "mechanisms.paper",
        "PaperMechanism": "mechanisms.contract",
        "RandomisedResponse": "mechanisms.labels",
        "ResidualMechanism": "mechanisms.contract",
        "SeededNoise": "noise",
        "Statement": "statements",
        "SystemNoise": "noise",
        "statement": "statements",
    },
)
