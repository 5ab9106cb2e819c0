"""What GAL is compared with, all behind one interface: see ``Method`` and ``METHODS``."""

from gal_bench.baselines.assisted_learning import learn_assisted
from gal_bench.baselines.late import learn_late
from gal_bench.baselines.method import Classifier, Estimator, Method
from gal_bench.baselines.methods import METHODS

__all__ = ["METHODS", "Classifier", "Estimator", "Method", "learn_assisted", "learn_late"]
