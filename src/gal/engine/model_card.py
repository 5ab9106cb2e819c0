"""A model card: what a fitted estimator is, how good, made of what, and what it is not for; as Markdown."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import sklearn
from sklearn.utils.validation import check_is_fitted

from gal.core.contributions import Contribution

NAMED = 12
"""Columns of an organization that are named; more are counted."""


def model_card(model: Any, version: str) -> str:
    """The card of a fitted ``GALClassifier`` or ``GALRegressor``; nothing of its rows is in it."""
    check_is_fitted(model, "ensemble_")
    parts = {
        "": _what(model),
        "Who holds what": _table(_organizations(model)),
        "How good it is": _losses(model),
        "Privacy": _privacy(model),
        "Before you use it": _limits(model),
        "How it was made": _made(model, version),
    }
    said = [f"# {type(model).__name__} of {model.label_holder_}"]
    for title, lines in parts.items():
        said.append("\n".join([*([f"## {title}", ""] if title else []), *lines]))
    return "\n\n".join(said) + "\n"


def _what(model: Any) -> Iterator[str]:
    classes = getattr(model, "classes_", None)
    what = "numbers" if classes is None else f"classes ({', '.join(map(str, np.ravel(classes)[:NAMED]))})"
    others = [name for name in model.ensemble_.organizations if name != model.label_holder_]
    helped = f"with the help of {', '.join(others)}" if others else "alone"
    helps = model.ensemble_.track == "assisted"
    used = "" if helps else " On the rows that validated, help made it no better: it is not used."
    yield f"Predicts {what} for {model.label_holder_}, {helped} (Gradient Assisted Learning).{used}"


def _organizations(model: Any) -> Iterator[tuple[str, ...]]:
    yield "organization", "columns", "which", "contribution"
    found, names = model.contributions_, getattr(model, "feature_names_in_", None)
    brought = {}
    if found is not None:
        brought = {name: _contribution(one) for name, one in found.by_organization.items()}
        brought[model.label_holder_] = f"{found.own:.4g} alone"
    for name, columns in model.columns_.items():
        first = [str(place if names is None else names[place]) for place in columns[:NAMED]]
        named = ", ".join(first) + (" and more" if len(columns) > NAMED else "")
        yield name, f"{len(columns):,}", named, brought.get(name, "")


def _contribution(one: Contribution) -> str:
    return f"{one.value:.4g} ({one.low:.4g} to {one.high:.4g}): {one.verdict}"


def _losses(model: Any) -> Iterator[str]:
    ensemble = model.ensemble_
    validated = {
        "before the first round": ensemble.initial_validation_loss,
        f"{model.label_holder_} alone": ensemble.alone_validation_loss,
        "with assistance": ensemble.assisted_validation_loss,
    }
    known = {name: loss for name, loss in validated.items() if loss is not None and math.isfinite(loss)}
    yield f"The loss is {model._loss.name}; lower is better. Contributions are told in it."
    yield ""
    if not known:
        yield f"No rows validated: on those it learned from it is {ensemble.train_loss:.6g}, which flatters."
        return
    losses = [(name, f"{loss:.6g}") for name, loss in known.items()]
    yield from _table([("on rows that were not fitted", "loss"), *losses])


def _privacy(model: Any) -> Iterator[str]:
    yield str(model.privacy_.words)
    yield ""
    yield (
        "Residuals and fitted values tell something of the columns of who sends them; gal leakage measures "
        "how much. The saved model holds the local models of all organizations: whoever has it has them."
    )


def _limits(_: Any) -> Iterator[str]:
    yield "- It needs the columns of every organization; `predict(X, missing=[...])` takes means instead."
    yield "- It was judged on rows like those it learned from; not on others, and not by groups of people."
    yield "- Categories and ranges that it has not seen are answered, too: watch what comes in."


def _made(model: Any, version: str) -> Iterator[str]:
    ensemble = model.ensemble_
    yield f"- {ensemble.n_rounds} of {len(ensemble.rounds)} rounds are used; {ensemble.stopped}"
    if (share := ensemble.closing_share) is not None:
        yield f"- A closing model on all answers takes part, with a share of {share:.0%}"
    if share := ensemble.probes_share:
        yield f"- Interaction probes take part, with a share of {share:.0%}"
    yield from (f"- `{name} = {value}`" for name, value in _chosen(model).items())
    yield f"- gal-learn {version}, scikit-learn {sklearn.__version__}, numpy {np.__version__}"
    yield f"- Python {platform.python_version()} on {platform.system()}"


def _chosen(model: Any) -> Mapping[str, str]:
    """Options that are not as by default, in a line each; not what could undo noise on labels."""
    standard = type(model)().get_params(deep=False)
    left_out = {"organizations", "on_round", "on_message", "privacy"}
    left_out |= set() if model.privacy is None else {"random_state"}
    given = {name: repr(value) for name, value in model.get_params(deep=False).items()}
    return {
        name: " ".join(value.split())[:200]
        for name, value in given.items()
        if name not in left_out and value != repr(standard[name])
    }


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
        if number == 0:
            yield "|" + "---|" * len(row)


__all__ = ["model_card"]
