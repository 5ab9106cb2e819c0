"""What GAL is compared with, all behind one interface: see ``METHODS``."""

from gal_bench.baselines.ensembles import learn_assisted
from gal_bench.baselines.methods import METHODS

__all__ = ["METHODS", "learn_assisted"]
