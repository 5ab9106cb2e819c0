"""Whether assistance would help, and how close to pooling it would come.

Models are compared on the same splits of a repeated cross-validation: *alone* (GAL with the label holder's
columns), *assisted* (GAL over all organizations), *alone, tuned* and *pooled* (the best tuned model on the
label holder's and on all columns). The verdict follows from intervals of paired differences:

>>> from sklearn.datasets import load_diabetes
>>> parts = {"clinic": ["age", "sex"], "insurer": ["bmi", "bp"]}
>>> found = simulate(load_diabetes(as_frame=True).frame, "target", parts, folds=2)
>>> found.verdict.value
'gain'
"""

from __future__ import annotations

import platform
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gal import __version__
from gal.core.contributions import Contributions
from gal.errors import InvalidInputError, InvalidLabelsError, NothingLearnedError
from gal.evaluate.comparing import Interval, Splits, Verdict, interval_of, scored, splits_of, verdict_of
from gal.evaluate.contribution_scores import CoalitionScores
from gal.evaluate.methods import alone, check_label_holder, gal
from gal.evaluate.metrics import Metric, Quality, log_loss, metric_for, quality_of
from gal.evaluate.pooled import pooled
from gal.evaluate.probe_gain import ProbeGain, probe_gain
from gal.evaluate.profile import (
    OnColumns,
    Remark,
    UsedColumn,
    checked_organizations,
    models_with_kinds,
    profile_of,
    target_column,
    used_columns,
)
from gal.learner.drivers import Traffic
from gal.learner.labels import plain_labels
from gal.learner.observing import LearningCurve, curve_of
from gal.models.reading.converting import reading_of
from gal.models.tabular.columns import as_frame
from gal.warnings import InterruptedWarning

OnStep = Callable[[str, float], None]
"""Receives the current step in words, and the share of the work that is done."""


@dataclass(frozen=True)
class Simulation:
    """The scores of a simulation, and what follows; out of sample, higher is better."""

    metric: str
    alone: Interval
    assisted: Interval
    pooled: Interval
    gain: Interval
    """assisted - alone, paired row by row."""
    pooling_gain: Interval
    """pooled - the better model alone, paired row by row."""
    verdict: Verdict
    """Follows from both gains."""
    contributions: Contributions | None
    """The gain by organization, in the metric; None with a single organization."""
    label_holder: str
    organizations: Mapping[str, list[str]]
    target: str
    rows: int
    predicted_rows: int
    """Rows predicted by models that were not fitted to them: all, or those of some splits."""
    seconds: float
    pooled_model: str
    """The most frequent tuned model of *pooled* over the splits."""
    alone_tuned: Interval | None = None
    """The best tuned model on the label holder's columns; None with a single organization."""
    alone_tuned_model: str | None = None
    """The most frequent one over the splits."""
    rounds_used: Sequence[int] = ()
    """Rounds of the model by split; 0: a constant predicts."""
    assistance_used: Sequence[bool] = ()
    """By split: whether assistance was better than alone on validation rows; otherwise it is not used."""
    profile: Sequence[Remark] = ()
    """Problems of the table."""
    columns: Sequence[UsedColumn] = ()
    """How each column is read."""
    log_losses: Mapping[str, float] | None = None
    """For classes: by model, on the same rows; lower is better."""
    learning: Sequence[LearningCurve] = ()
    """Losses by round, for each fold."""
    quality: Quality | None = None
    """Predicted against true."""
    interaction_probes: ProbeGain | None = None
    """The significant gain of interaction probes on a sample, or None."""
    traffic: Traffic | None = None
    """Messages between the organizations in the first split."""
    setting: Mapping[str, Any] = field(default_factory=dict)
    """Rounds, parts (folds), repeats and seed."""
    software: Mapping[str, str] = field(default_factory=dict)
    """Packages with their versions."""

    @property
    def covered(self) -> float | None:
        """Share of the pooling gain, at most 1; None unless both gains are significant."""
        if self.verdict is not Verdict.GAIN or not self.pooling_gain.low > 0:
            return None
        best = max(self.alone.value, self.alone.value if self.alone_tuned is None else self.alone_tuned.value)
        return min((self.assisted.value - best) / self.pooling_gain.value, 1.0)

    def to_json(self) -> dict[str, Any]:
        """Plain values; ``alone``, ``assisted`` and ``pooled`` are numbers at the top."""
        facts = asdict(self)
        facts["columns"] = [one.to_json() for one in self.columns]
        names = ["alone", "assisted", "pooled", "gain", "pooling_gain"]
        if self.alone_tuned is not None:
            names.append("alone_tuned")
        facts["intervals"] = {name: [facts[name]["low"], facts[name]["high"]] for name in names}
        for name in names:
            facts[name] = facts[name]["value"]
        facts["verdict"] = self.verdict.value
        facts["covered"] = self.covered
        return facts


def simulate(
    table: Any,
    target: str,
    organizations: Mapping[str, list[str]],
    *,
    label_holder: str | None = None,
    local_models: Any = None,
    rounds: str | int = "auto",
    metric: str = "auto",
    folds: int | None = None,
    seed: int = 0,
    on_step: OnStep | None = None,
    kinds: Mapping[str, str] | None = None,
    on_columns: OnColumns | None = None,
) -> Simulation:
    """Cross-validate alone, assisted and pooled on a table.

    Parameters
    ----------
    table: a data frame with all columns and the target.
    target: the column to predict.
    organizations: columns by organization.
    label_holder: by default the first organization.
    local_models: one regressor for all, or a mapping by organization.
    metric: "auto", or a name of ``gal.evaluate.metrics.METRICS``.
    folds: of each cross-validation; by default from the number of rows.
    on_step: receives the current step in words, and the share of the work that is done.
    kinds: of columns whose kind is guessed wrong, such as ``{"zip": "category"}``.
    on_columns: receives how each column is read, before anything is learned.
    """
    started, tell = time.perf_counter(), on_step or (lambda *_: None)
    frame = as_frame(table).rename(columns=str)
    _check_shape(frame)
    y = plain_labels(target_column(frame, target).to_numpy())
    names = checked_organizations(frame, target, organizations)
    chosen = metric_for(metric, y)
    classes = None
    if chosen.classes:
        _refuse_rare(y, target)
        found, y = np.unique(y, return_inverse=True)
        classes = found.tolist()
    holder, columns = check_label_holder(names, label_holder), used_columns(frame, names, kinds)
    if on_columns is not None:
        on_columns(columns)
    X, models = models_with_kinds(frame.drop(columns=[target]), columns, local_models)
    task = {
        "classes": chosen.classes,
        "organizations": names,
        "label_holder": holder,
        "local_models": models,
        "rounds": rounds,
        "random_state": seed,
    }
    splits = splits_of(y, classes=chosen.classes, folds=folds, seed=seed)
    coalitions = CoalitionScores(chosen, [name for name in names if name != holder], seed)
    by_split: dict[str, list[NDArray[Any]]] = defaultdict(list)
    picked: dict[str, Counter[str]] = defaultdict(Counter)
    rounds_used, used, learning, traffic = [], [], [], None
    for index, split in enumerate(splits):

        def report_split(words: str, share: float, index: int = index) -> None:
            tell(f"split {index + 1} of {len(splits)}, {words}", (index + share) / len(splits))

        test = X.iloc[split.test]
        fitted = _models(X.iloc[split.train], y[split.train], task, report_split)
        for name, model in fitted.items():
            by_split[name].append(_output(model, test, None if classes is None else len(classes)))
            if hasattr(model, "chosen_"):
                picked[name][model.chosen_] += 1
        assisted = fitted["assisted"]
        rounds_used.append(assisted.n_rounds_)
        used.append(assisted.ensemble_.track == "assisted" and assisted.n_rounds_ > 0)
        learning.append(curve_of(assisted.ensemble_))
        traffic = traffic or assisted.traffic_
        coalitions.add(fitted["alone"], assisted, test)
    truth, n_folds = y[splits.rows], len(splits.repeats[0])
    outputs = {name: splits.gathered(parts) for name, parts in by_split.items()}
    return Simulation(
        metric=chosen.name,
        **_compared(chosen, truth, outputs, splits, coalitions),
        label_holder=holder,
        organizations=names,
        target=target,
        rows=len(y),
        predicted_rows=len(truth),
        pooled_model=picked["pooled"].most_common(1)[0][0],
        alone_tuned_model=picked["alone_tuned"].most_common(1)[0][0] if "alone_tuned" in picked else None,
        rounds_used=rounds_used,
        assistance_used=used,
        profile=profile_of(frame, target, names, columns, classes=chosen.classes),
        columns=columns,
        log_losses=None if classes is None else {name: _log_loss(truth, outputs[name]) for name in outputs},
        learning=learning[:n_folds],
        quality=quality_of(truth, outputs["assisted"][0], classes),
        interaction_probes=probe_gain(X, y, task, chosen, _fit, tell),
        traffic=traffic,
        setting={"rounds": rounds, "seed": seed, "parts": n_folds, "repeats": len(splits.repeats)},
        software=software(),
        seconds=time.perf_counter() - started,
    )


def _compared(
    metric: Metric,
    truth: NDArray[Any],
    outputs: Mapping[str, list[NDArray[Any]]],
    splits: Splits,
    coalitions: CoalitionScores,
) -> dict[str, Any]:
    """Scores, gains, the verdict and contributions, from the outputs of each model by repeat."""
    scores = {
        name: scored(metric, truth, [metric.inputs(one) for one in repeats], splits)
        for name, repeats in outputs.items()
    }
    alone, assisted = scores["alone"], scores["assisted"]
    best_alone = max(alone, scores.get("alone_tuned", alone), key=lambda one: one.value)
    gain = interval_of(assisted.less(alone), splits)
    pooling_gain = interval_of(scores["pooled"].less(best_alone), splits)
    verdict = Verdict.NO_GAIN
    if coalitions.others:
        verdict = verdict_of(gain, pooling_gain, beats_tuned=assisted.value > best_alone.value)
    return {name: interval_of(one, splits, metric.best) for name, one in scores.items()} | {
        "gain": gain,
        "pooling_gain": pooling_gain,
        "verdict": verdict,
        "contributions": coalitions.contributions(truth, splits, alone, assisted, gain),
    }


def _log_loss(truth: NDArray[Any], repeats: Sequence[NDArray[Any]]) -> float:
    return float(np.mean([log_loss(truth, one) for one in repeats]))


def software() -> dict[str, str]:
    """The packages that compute, with their versions."""
    packages = ("numpy", "scipy", "scikit-learn", "pandas")
    own = {"gal-learn": __version__, "Python": platform.python_version()}
    return own | {name: version(name) for name in packages}


def _models(X: pd.DataFrame, y: NDArray[Any], task: Mapping[str, Any], tell: OnStep) -> dict[str, Any]:
    """The models of one split, fitted; tuned ones are chosen on its training rows."""
    holder, organizations, rounds = task["label_holder"], task["organizations"], task["rounds"]
    tuned = {name: value for name, value in task.items() if name != "rounds"}
    tell("alone", 0.0)
    models = {"alone": _fit(alone(**task), X, y)}
    if len(organizations) > 1:  # otherwise assisted is alone
        own = {holder: organizations[holder]}
        models["alone_tuned"] = _fit(pooled(**{**tuned, "organizations": own}), X, y)

    def on_round(progress: Any) -> None:
        done = len(progress.rounds)
        most = "" if isinstance(rounds, str) else f" of at most {rounds}"
        tell(f"assisted, round {done}{most}", 0.1 + 0.6 * done / (done + 5))  # it takes longest

    tell("assisted", 0.1)
    models["assisted"] = _fit(gal(**task), X, y, on_round=on_round)
    tell("pooled", 0.7)
    models["pooled"] = _fit(pooled(**tuned), X, y)
    return models


def _output(model: Any, X: pd.DataFrame, n_classes: int | None) -> NDArray[Any]:
    """Numbers, or probabilities of all classes; the model may not know every one of them."""
    if n_classes is None:
        return np.asarray(model.predict(X))
    known = np.asarray(model.predict_proba(X))
    whole = np.zeros((len(known), n_classes))
    whole[:, np.asarray(model.classes_, dtype=int)] = known
    return whole


def _fit(model: Any, X: pd.DataFrame, y: NDArray[Any], **observers: Any) -> Any:
    """Fit; Ctrl-C ends the simulation, where an estimator alone would keep its finished rounds."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", InterruptedWarning)
            return model.fit(X, y, **observers)
    except (InterruptedWarning, NothingLearnedError) as ended:
        raise KeyboardInterrupt from ended


def _check_shape(frame: pd.DataFrame) -> None:
    n = len(frame)
    if n < 3:
        raise InvalidInputError(f"the table has {n} row{'' if n == 1 else 's'}: comparing models needs more")
    if not frame.columns.is_unique:
        twice = sorted(set(frame.columns[frame.columns.duplicated()]))
        raise InvalidInputError(
            f"the table has columns of the same name: {', '.join(twice)}. Rename or remove one of each"
        )


def _refuse_rare(labels: NDArray[Any], target: str) -> None:
    """An error where a cross-validation cannot divide the classes."""
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2:
        raise InvalidLabelsError(
            f"all {len(labels):,} values of {target!r} are {classes.tolist()[0]!r}: there is nothing to "
            "learn. Is it the right column?"
        )
    rare = classes[counts < 2].tolist()
    if rare:
        named = ", ".join(map(repr, rare[:5])) + (f" and {len(rare) - 5} more" if len(rare) > 5 else "")
        read = reading_of(pd.Series(labels), target)
        words = [] if read is None else read.how.get("words", [])
        raise InvalidLabelsError(
            f"{named} of {target!r} occurs in one row only: a model cannot learn it and be validated on it. "
            "Leave these rows out, or merge rare classes."
            + (" (Are these numbers? Then --metric r2)" if read is None else "")
            + (f" (Are these numbers? Then correct {words[0]!r}, which is none)" if words else "")
        )


__all__ = ["Interval", "Simulation", "Verdict", "simulate", "software"]
