"""Fit, see who brought what, save without pickle, and predict with what was read back.

Run it: python examples/save_and_explain.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from gal import GALClassifier

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
organizations = {"radiology": X.columns[:10], "pathology": X.columns[10:20], "genetics": X.columns[20:]}
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

model = GALClassifier(organizations, rounds=5, random_state=0).fit(X_train, y_train)
for done in model.rounds_:
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in done.weights.items())
    print(f"round {done.round}: loss {done.train_loss:.3f}, weights {weights}")
print(model.explain(X_test.head(3)).round(2).to_string())

with TemporaryDirectory() as folder:
    model.save(Path(folder) / "model.gal")
    again = GALClassifier.load(Path(folder) / "model.gal")
print(f"right for {again.score(X_test, y_test):.0%} of the patients that were not fitted")
