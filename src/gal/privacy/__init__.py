"""Privacy: bounds on what messages reveal of the labels and of an organization's rows.

Mechanisms with a guarantee (extra ``privacy``): `RandomisedResponse`, `LaplaceLabels` and `GaussianLabels`
make a noisy copy of the labels once. The paper's own, `PaperLaplace` and `PaperInterval`, are for reproducing
its tables and guarantee nothing.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from gal.on_demand import on_demand as _on_demand

if _TYPE_CHECKING:
    from gal.privacy.accounting import Cost, noise_multiplier
    from gal.privacy.mechanisms.contract import (
        LabelMechanism,
        Mechanism,
        PaperMechanism,
        Statement,
        statement,
    )
    from gal.privacy.mechanisms.labels import GaussianLabels, LaplaceLabels, RandomisedResponse
    from gal.privacy.mechanisms.paper import PaperInterval, PaperLaplace
    from gal.privacy.noise import NoiseSource, SeededNoise, SystemNoise

__all__ = [
    "Cost",
    "GaussianLabels",
    "LabelMechanism",
    "LaplaceLabels",
    "Mechanism",
    "NoiseSource",
    "PaperInterval",
    "PaperLaplace",
    "PaperMechanism",
    "RandomisedResponse",
    "SeededNoise",
    "Statement",
    "SystemNoise",
    "noise_multiplier",
    "statement",
]

__getattr__, __dir__ = _on_demand(
    __name__,
    globals(),
    {
        "Cost": "accounting",
        "GaussianLabels": "mechanisms.labels",
        "LabelMechanism": "mechanisms.contract",
        "LaplaceLabels": "mechanisms.labels",
        "Mechanism": "mechanisms.contract",
        "NoiseSource": "noise",
        "PaperInterval": "mechanisms.paper",
        "PaperLaplace": "mechanisms.paper",
        "PaperMechanism": "mechanisms.contract",
        "RandomisedResponse": "mechanisms.labels",
        "SeededNoise": "noise",
        "Statement": "mechanisms.contract",
        "SystemNoise": "noise",
        "noise_multiplier": "accounting",
        "statement": "mechanisms.contract",
    },
)
