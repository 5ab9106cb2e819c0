"""Every organization brings its own view, model and local loss; the label holder only adds their answers up.

What ``gal serve`` does over the network, in one process. Run it: python examples/own_models_and_losses.py
"""

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.svm import SVR

import gal
from gal.models import check_local_model

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 6))
y = X[:, 0] + np.sin(2 * X[:, 2]) + X[:, 4] * (X[:, 5] > 0) + 0.1 * rng.normal(size=300)
known, new = slice(0, 200), slice(200, 300)

check_local_model(SVR())  # does it do what GAL asks of a local model? Run this on your own
organizations = [
    gal.Organization("bank", X[known, :2]),  # the default model, for mixed tables
    gal.Organization("shop", X[known, 2:4], SVR()),
    gal.Organization("lab", X[known, 4:], RandomForestRegressor(50), local_loss="l1"),
]
ensemble = gal.learn(y[known], organizations, label_holder="bank", rounds=5, seed=0)

views = {"bank": X[new, :2], "shop": X[new, 2:4], "lab": X[new, 4:]}
with_lab = gal.predict(ensemble, organizations, views)
del views["lab"]  # it cannot be asked today: its mean contribution stands in
without = gal.predict(ensemble, organizations, views)
for name, prediction in {"everybody": with_lab, "without lab": without}.items():
    error = np.abs(prediction.output[:, 0] - y[new]).mean()
    print(f"{name:12s} mean error {error:.2f}, {int(prediction.degraded.sum())} of 100 rows degraded")
