"""The evaluator's question: would assistance help me, and how close to pooling does it get?

Models are compared on the same splits of a repeated cross-validation: *alone* (GAL with the label holder's
columns), *assisted* (GAL over all organizations), *alone, tuned* and *pooled* (the best tuned model on the
label holder's and on all columns). Every row is predicted by models that never saw it. The verdict follows
from the intervals of paired differences (``comparing``).

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
from gal.errors import InvalidInputError, InvalidLabelsError, NothingLearnedError, did_you_mean
from gal.evaluate.comparing import Interval, Splits, Verdict, interval_of, scored, splits_of, verdict_of
from gal.evaluate.contribution_scores import Joining
from gal.evaluate.methods import alone, check_label_holder, gal
from gal.evaluate.metrics import Metric, log_loss, metric_for
from gal.evaluate.pooled import pooled
from gal.evaluate.probe_gain import ProbeGain, probe_gain
from gal.evaluate.profile import Remark, profile_of
from gal.evaluate.quality import Quality, quality_of
from gal.evaluate.understood import OnColumns, UsedColumn, target_column, told_models, understood
from gal.learner.drivers import Traffic
from gal.learner.labels import LARGEST_NUMBER, plain_labels
from gal.learner.observing import LearningCurve, curve_of
from gal.models.reading.converting import reading_of
from gal.models.tabular.frames import as_frame
from gal.warnings import InterruptedWarning

OnStep = Callable[[str, float], None]
"""Gets what is done now in words, and the share of all work that is done."""


@dataclass(frozen=True)
class Simulation:
    """What was found; scores are out of sample, higher is better."""

    metric: str
    alone: Interval
    assisted: Interval
    pooled: Interval
    gain: Interval
    """assisted - alone, paired row by row."""
    pooling_gain: Interval
    """pooled - the better model alone, paired row by row."""
    verdict: Verdict
    """What follows from both gains."""
    contributions: Contributions | None
    """The gain by organization, in the metric; None where the label holder is the only one."""
    label_holder: str
    organizations: Mapping[str, list[str]]
    target: str
    rows: int
    predicted_rows: int
    """How many of them were predicted by models that had not seen them: all, or one test part."""
    seconds: float
    pooled_model: str
    """Which tuned model *pooled* is; where that differs between splits, the most frequent one."""
    alone_tuned: Interval | None = None
    """The best tuned model on the label holder's columns; None where it is the only organization."""
    alone_tuned_model: str | None = None
    """Which tuned model that is."""
    rounds_used: Sequence[int] = ()
    """By split of the cross-validation: how many rounds validated; 0 where a constant is all that holds."""
    assistance_used: Sequence[bool] = ()
    """By split: whether assistance was better than alone on rows that validate; else it is not used there."""
    profile: Sequence[Remark] = ()
    """What should be looked at in the table first."""
    columns: Sequence[UsedColumn] = ()
    """What was understood of each column."""
    log_losses: Mapping[str, float] | None = None
    """For classes: of alone, assisted and pooled, on the same rows; lower is better."""
    learning: Sequence[LearningCurve] = ()
    """By part: losses by round."""
    quality: Quality | None = None
    """How the predictions fit the truth."""
    interaction_probes: ProbeGain | None = None
    """What interaction probes would bring beyond chance, on a sample; None: nothing, or not possible."""
    traffic: Traffic | None = None
    """What would move between the organizations, measured while the first part was learned."""
    setting: Mapping[str, Any] = field(default_factory=dict)
    """How it was computed: rounds, parts, seed."""
    software: Mapping[str, str] = field(default_factory=dict)
    """What computed it, with versions."""

    @property
    def covered(self) -> float | None:
        """Share of the pooling gain, at most 1; None where the gain, or the pooling gain, may be chance."""
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
    """Cross-validate alone, assisted and pooled on this table.

    ``kinds``: of what kind columns are, where a guess is wrong; ``on_columns`` gets what was understood.
    """
    started, say = time.perf_counter(), on_step or (lambda *_: None)
    frame = as_frame(table).rename(columns=str)
    y, names = _checked(frame, target, organizations)
    chosen = metric_for(metric, y)
    classes = None
    if chosen.classes:
        _refuse_rare(y, target)
        found, y = np.unique(y, return_inverse=True)
        classes = found.tolist()
    holder = check_label_holder(names, label_holder)
    columns = understood(frame, names, kinds, on_columns)
    X, models = told_models(frame.drop(columns=[target]), columns, local_models)
    setting = {
        "classes": chosen.classes,
        "organizations": names,
        "label_holder": holder,
        "local_models": models,
        "rounds": rounds,
        "random_state": seed,
    }
    splits = splits_of(y, classes=chosen.classes, folds=folds, seed=seed)
    joining = Joining(chosen, [name for name in names if name != holder], seed)
    said: dict[str, list[NDArray[Any]]] = defaultdict(list)
    picked: dict[str, Counter[str]] = defaultdict(Counter)
    curves, traffic = [], None
    for index, split in enumerate(splits):

        def tell(words: str, share: float, part: int = index) -> None:
            say(f"part {part + 1} of {len(splits)}, {words}", (part + share) / len(splits))

        test = X.iloc[split.test]
        fitted = _models(X.iloc[split.train], y[split.train], setting, tell)
        for name, model in fitted.items():
            said[name].append(_said(model, test, None if classes is None else len(classes)))
            if hasattr(model, "chosen_"):
                picked[name][model.chosen_] += 1
        traffic = traffic or fitted["assisted"].traffic_
        curves.append(curve_of(fitted["assisted"].ensemble_))
        joining.note(fitted["alone"], fitted["assisted"], test)
    truth = y[splits.rows]
    gathered = {name: splits.gathered(parts) for name, parts in said.items()}
    log_losses = None
    if classes is not None:
        losses = {name: [log_loss(truth, one) for one in repeats] for name, repeats in gathered.items()}
        log_losses = {name: float(np.mean(each)) for name, each in losses.items()}
    return Simulation(
        metric=chosen.name,
        **_compared(chosen, truth, gathered, splits, joining),
        label_holder=holder,
        organizations=names,
        target=target,
        rows=len(y),
        predicted_rows=len(truth),
        pooled_model=picked["pooled"].most_common(1)[0][0],
        alone_tuned_model=picked["alone_tuned"].most_common(1)[0][0] if "alone_tuned" in picked else None,
        rounds_used=joining.rounds,
        assistance_used=joining.used,
        profile=profile_of(frame, target, names, columns, classes=chosen.classes),
        columns=columns,
        log_losses=log_losses,
        learning=curves[: len(splits.repeats[0])],
        quality=quality_of(truth, gathered["assisted"][0], classes),
        interaction_probes=probe_gain(X, y, setting, chosen, _fit, say),
        traffic=traffic,
        setting={
            "rounds": rounds,
            "seed": seed,
            "parts": len(splits.repeats[0]),
            "repeats": len(splits.repeats),
        },
        software=software(),
        seconds=time.perf_counter() - started,
    )


def _compared(
    metric: Metric,
    truth: NDArray[Any],
    gathered: Mapping[str, list[NDArray[Any]]],
    splits: Splits,
    joining: Joining,
) -> dict[str, Any]:
    """Scores, gains, the verdict and contributions, from what every model says of the rows left out."""
    scores = {
        name: scored(metric, truth, [metric.from_said(one) for one in repeats], splits)
        for name, repeats in gathered.items()
    }
    alone, assisted = scores["alone"], scores["assisted"]
    best_alone = max(alone, scores.get("alone_tuned", alone), key=lambda one: one.value)
    gain = interval_of(assisted.less(alone), splits)
    pooling_gain = interval_of(scores["pooled"].less(best_alone), splits)
    found = joining.contributions(truth, splits, alone, assisted, gain)
    better = assisted.value > best_alone.value
    verdict = Verdict.NO_GAIN if found is None else verdict_of(gain, pooling_gain, beats_tuned=better)
    return {name: interval_of(one, splits, metric.best) for name, one in scores.items()} | {
        "gain": gain,
        "pooling_gain": pooling_gain,
        "verdict": verdict,
        "contributions": found,
    }


def software() -> dict[str, str]:
    """What computes, with versions."""
    packages = ("numpy", "scipy", "scikit-learn", "pandas")
    own = {"gal-learn": __version__, "Python": platform.python_version()}
    return own | {name: version(name) for name in packages}


def _models(
    X: pd.DataFrame, y: NDArray[Any], setting: Mapping[str, Any], tell: Callable[[str, float], None]
) -> dict[str, Any]:
    """The models of one split, fitted; tuned ones are chosen on its training rows."""
    holder, organizations, rounds = setting["label_holder"], setting["organizations"], setting["rounds"]
    tuned = {name: value for name, value in setting.items() if name != "rounds"}
    tell("alone", 0.0)
    models = {"alone": _fit(alone(**setting), X, y)}
    if len(organizations) > 1:  # else assisted is alone
        own = {holder: organizations[holder]}
        models["alone_tuned"] = _fit(pooled(**{**tuned, "organizations": own}), X, y)

    def on_round(progress: Any) -> None:
        done = len(progress.rounds)
        most = "" if isinstance(rounds, str) else f" of at most {rounds}"
        tell(f"assisted, round {done}{most}", 0.1 + 0.6 * done / (done + 5))  # it takes longest

    tell("assisted", 0.1)
    models["assisted"] = _fit(gal(**setting, on_round=on_round), X, y)
    tell("pooled", 0.7)
    models["pooled"] = _fit(pooled(**tuned), X, y)
    return models


def _said(model: Any, X: pd.DataFrame, n_classes: int | None) -> NDArray[Any]:
    """Numbers, or probabilities of all classes, whose codes the model knows."""
    if n_classes is None:
        return np.asarray(model.predict(X))
    known = np.asarray(model.predict_proba(X))
    whole = np.zeros((len(known), n_classes))
    whole[:, np.asarray(model.classes_, dtype=int)] = known
    return whole


def _fit(model: Any, X: pd.DataFrame, y: NDArray[Any]) -> Any:
    """Fit; Ctrl-C ends everything, where an estimator alone would keep its finished rounds."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", InterruptedWarning)
            return model.fit(X, y)
    except (InterruptedWarning, NothingLearnedError) as ended:
        raise KeyboardInterrupt from ended


def _checked(
    frame: pd.DataFrame, target: str, organizations: Mapping[str, list[str]]
) -> tuple[NDArray[Any], dict[str, list[str]]]:
    """Labels, and columns by organization."""
    if len(frame) < 3:
        n = len(frame)
        raise InvalidInputError(f"the table has {n} row{'' if n == 1 else 's'}: comparing models needs more")
    if not frame.columns.is_unique:
        twice = sorted(set(frame.columns[frame.columns.duplicated()]))
        raise InvalidInputError(f"the table has columns of the same name: {', '.join(twice)}")
    y = target_column(frame, target)
    names = {str(name): [str(column) for column in columns] for name, columns in organizations.items()}
    for name, columns in names.items():
        if target in columns:
            raise InvalidInputError(
                f"organization {name!r} holds {target!r}, which is what is to be predicted"
            )
        unknown = [column for column in columns if column not in frame.columns]
        if unknown:
            raise InvalidInputError(
                f"organization {name!r}: no column {', '.join(map(repr, unknown))} in the table."
                f"{did_you_mean(unknown[0], frame.columns)} It has {', '.join(frame.columns[:20])}"
            )
        if not columns:
            raise InvalidInputError(f"organization {name!r} has no columns: give it some or leave it out")
        _refuse_large(frame, columns, f"organization {name!r}")
    if not names:
        raise InvalidInputError("no organizations: name at least one")
    _refuse_large(frame, [target], "the label holder")
    return plain_labels(y.to_numpy()), names


def _refuse_large(frame: pd.DataFrame, columns: list[str], who: str) -> None:
    """An error where numbers are too large to compute with."""
    for column in columns:
        if frame[column].dtype.kind != "f":
            continue
        large = frame[column].abs() > LARGEST_NUMBER
        if large.any():
            raise InvalidInputError(
                f"{who}: {int(large.sum()):,} values of {column!r} are too large to compute with, such as "
                f"{frame[column][large].iloc[0]:.3g}: give them in another unit, or leave these rows out"
            )


def _refuse_rare(labels: NDArray[Any], target: str) -> None:
    """Said before anything is learned: classes that no cross-validation can divide."""
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2:
        raise InvalidLabelsError(
            f"all {len(labels):,} values of {target!r} are {classes.tolist()[0]!r}: there is nothing to tell "
            "apart. Is it the right column?"
        )
    rare = classes[counts < 2].tolist()
    if rare:
        named = ", ".join(map(repr, rare[:5])) + (f" and {len(rare) - 5} more" if len(rare) > 5 else "")
        read = reading_of(pd.Series(labels), target)
        words = [] if read is None else read.how.get("words", [])
        raise InvalidLabelsError(
            f"{named} of {target!r}: there in one row only. A model cannot learn it and be tried on it. "
            "Leave these rows out, or put rare classes together."
            + (" (Are these numbers? Then --metric r2)" if read is None else "")
            + (f" (Are these numbers? Then correct {words[0]!r}, which is none)" if words else "")
        )


__all__ = ["Interval", "Simulation", "Verdict", "simulate", "software"]
