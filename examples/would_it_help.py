"""Would assistance help me? Alone, assisted and pooled, on a table that you have.

The same as ``gal simulate`` on the command line. Run it: python examples/would_it_help.py
"""

from sklearn.datasets import load_diabetes

from gal.evaluate import simulate

table = load_diabetes(as_frame=True).frame
organizations = {
    "clinic": ["age", "sex", "bp"],
    "insurer": ["bmi"],
    "lab": ["s1", "s2", "s3", "s4", "s5", "s6"],
}

found = simulate(table, "target", organizations, label_holder="clinic", folds=3)
for name in ("alone", "assisted", "pooled"):
    score = getattr(found, name)
    print(f"{name:9s} {found.metric} {score.value:.2f}  (95 % from {score.low:.2f} to {score.high:.2f})")
print(f"verdict   {found.verdict}")
for name, one in found.contributions.by_organization.items():
    print(f"{name} contributes {one.value:.3f} ({one.low:.3f} to {one.high:.3f}): {one.verdict}")
