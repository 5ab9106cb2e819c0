"""Privacy: what is done to a residual before it leaves the label holder.

Here so far: the two mechanisms of the GAL paper, for reproducing its tables. Neither gives a
differential-privacy guarantee.
"""

from gal.privacy.paper import Mechanism, PaperInterval, PaperLaplace

__all__ = ["Mechanism", "PaperInterval", "PaperLaplace"]
