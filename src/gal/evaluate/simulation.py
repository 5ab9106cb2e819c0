"""The evaluator's question: would assistance help me, and how close to pooling does it get?

Three models are cross-validated on the same folds: *alone* (the label holder's columns), *assisted*
(GAL over all organizations) and *pooled* (all columns in one place). Every row is predicted by models
that never saw it; the confidence intervals are bootstraps over these rows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

from gal.core.contributing.shares import Earned, Shares
from gal.engine.labels import LARGEST_NUMBER, plain_labels
from gal.engine.observing import LearningCurve
from gal.engine.options import is_auto
from gal.errors import InvalidInputError, InvalidLabelsError, NothingLearnedError, did_you_mean
from gal.evaluate.baselines import METHODS
from gal.evaluate.baselines.method import check_label_holder
from gal.evaluate.coalition_scores import Joining, worth_of
from gal.evaluate.evidence import Evidence, Exchange
from gal.evaluate.metrics import METRICS, Metric, metric_for
from gal.evaluate.probe_gain import ProbeGain, probe_gain
from gal.evaluate.profile import Remark, profile_of
from gal.evaluate.quality import Quality
from gal.evaluate.spreading import Spread, with_one_core
from gal.models.tabular.frames import as_frame
from gal.warnings import InterruptedWarning

RESAMPLES = 1000
OnStep = Callable[[str], None]
"""Gets a sentence about what is done now."""

COMPARED = {"alone": "alone", "assisted": "gal", "pooled": "pooled"}
"""The methods, by what they are called here."""


@dataclass(frozen=True)
class Interval:
    """A score and its 95 % confidence interval; higher is better."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Simulation:
    """What was found; scores are out of sample, higher is better."""

    metric: str
    alone: Interval
    assisted: Interval
    pooled: Interval
    gain: Interval
    """assisted - alone, on the same rows."""
    covered: float | None
    """Share of the way from alone to pooled; None where pooling brings nothing."""
    contributions: Mapping[str, float]
    """Of what was learned that holds for rows not seen: the label holder's own part, and what each of
    the others adds to it. They add up to 1, or are all 0 where nothing was learned.
    """
    shares: Shares | None
    """The gain by organization, in the metric, with intervals, and what coalitions would bring; None
    where the label holder is the only organization.
    """
    label_holder: str
    organizations: Mapping[str, list[str]]
    target: str
    rows: int
    predicted_rows: int
    """How many of them were predicted by models that had not seen them: all, or one test part."""
    seconds: float
    pooled_model: str
    rounds_used: Sequence[int] = ()
    """By part of the cross-validation: how many rounds validated; 0 where a constant is all that holds."""
    assistance_used: Sequence[bool] = ()
    """By part: whether assistance was better than alone on rows that validate; else it is not used there."""
    profile: Sequence[Remark] = ()
    """What should be looked at in the table first."""
    worth_per_point: float | None = None
    """What a point of the metric is worth to the label holder (see ``point_of``)."""
    log_losses: Mapping[str, float] | None = None
    """For classes: of alone, assisted and pooled, on the same rows; lower is better."""
    learning: Sequence[LearningCurve] = ()
    """By part: losses by round."""
    quality: Quality | None = None
    """How the predictions fit the truth."""
    interaction_probes: ProbeGain | None = None
    """What interaction probes would bring beyond chance, on a sample; None: nothing, or not possible."""
    exchange: Exchange | None = None
    """What would move between the organizations, measured while the first part was learned."""
    setting: Mapping[str, Any] = field(default_factory=dict)
    """How it was computed: rounds, parts, seed."""
    software: Mapping[str, str] = field(default_factory=dict)
    """What computed it, with versions."""

    def worth(self) -> dict[str, float] | None:
        """What each of the others' shares is worth; None where nobody says what a point is."""
        if self.shares is None or self.worth_per_point is None:
            return None
        return worth_of(self.shares, self.worth_per_point, self.metric)

    @property
    def covered_by_log_loss(self) -> float | None:
        """Share of the way from alone to pooled in log loss, mostly less than in AUC; None without a way."""
        losses = self.log_losses
        if losses is None or not losses["pooled"] < losses["alone"]:
            return None
        return (losses["alone"] - losses["assisted"]) / (losses["alone"] - losses["pooled"])

    def plot_rounds(self, ax: Any = None) -> Any:
        """Losses by round on an axis of matplotlib; the display has ``ax_`` and ``figure_``."""
        return _drawn("plot_rounds", self, ax)

    def plot_contributions(self, ax: Any = None) -> Any:
        """Who earned what of the gain, with intervals; the display has ``ax_`` and ``figure_``."""
        return _drawn("plot_contributions", self, ax)

    def plot_calibration(self, ax: Any = None) -> Any:
        """Predicted against true, in groups of rows; the display has ``ax_`` and ``figure_``."""
        return _drawn("plot_calibration", self, ax)

    def to_json(self) -> dict[str, Any]:
        """Plain values; ``alone``, ``assisted`` and ``pooled`` are numbers at the top."""
        facts = asdict(self)
        names = ("alone", "assisted", "pooled", "gain")
        facts["intervals"] = {name: [facts[name]["low"], facts[name]["high"]] for name in names}
        for name in names:
            facts[name] = facts[name]["value"]
        facts["verdicts"] = {} if self.shares is None else self.shares.verdicts()
        facts["worth"] = self.worth()
        facts["covered_by_log_loss"] = self.covered_by_log_loss
        return facts


def _drawn(name: str, found: Simulation, ax: Any) -> Any:
    from gal import evaluate

    return getattr(evaluate, name)(found, ax=ax)


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
    relearn: bool = False,
    worth_per_point: float | None = None,
    spread: Spread | None = None,
    on_step: OnStep | None = None,
) -> Simulation:
    """Cross-validate alone, assisted and pooled on this table.

    What some organizations would bring is estimated; ``relearn`` learns with each coalition instead.
    ``worth_per_point``: what a point of the metric is worth; ``spread`` computes parts side by side.

    >>> from sklearn.datasets import load_diabetes
    >>> table = load_diabetes(as_frame=True).frame
    >>> parts = {"clinic": ["age", "sex"], "insurer": ["bmi", "bp"]}
    >>> found = simulate(table, "target", parts, folds=2)
    >>> found.assisted.value > found.alone.value
    True
    """
    started, say = time.perf_counter(), on_step or _say_nothing
    asked = table, target, organizations, metric, label_holder, local_models, rounds, seed
    X, y, chosen, setting = _question(*asked)
    frame = as_frame(table).rename(columns=str)
    _refuse_rare(frame[target].to_numpy(), chosen, target)
    evidence = Evidence(chosen, setting.pop("class_names"), setting["label_holder"])
    splits = _splits(y, chosen, folds, seed)
    joining = _joining(setting, chosen, relearn=relearn)
    picked, outputs = _left_out_outputs((X, y), setting, splits, joining, evidence, say, spread)
    gained = {"interaction_probes": probe_gain(X, y, setting, chosen, _fit, say)}
    truth = np.concatenate([y[test] for _, test in splits])
    scores = _bootstrap(chosen, truth, outputs, seed, say)
    shares = joining.shares(truth, Earned(**asdict(scores["gain"])))
    facts: dict[str, Any] = {**scores, **evidence.facts(truth), **gained, "covered": _covered(scores)}
    return Simulation(
        metric=chosen.name,
        contributions=_contributions(shares, setting["label_holder"], scores["alone"].value),
        shares=shares,
        label_holder=setting["label_holder"],
        organizations=setting["organizations"],
        target=target,
        rows=len(y),
        predicted_rows=len(truth),
        seconds=time.perf_counter() - started,
        pooled_model=picked,
        rounds_used=joining.rounds,
        assistance_used=joining.used,
        profile=profile_of(frame, target, setting["organizations"], classes=chosen.classes),
        worth_per_point=worth_per_point,
        setting={"rounds": rounds, "parts": len(splits), "seed": seed, "relearned": relearn},
        **facts,
    )


def assisted_model(
    table: Any,
    target: str,
    organizations: Mapping[str, list[str]],
    *,
    label_holder: str | None = None,
    local_models: Any = None,
    rounds: str | int = "auto",
    seed: int = 0,
) -> Any:
    """The estimator that ``simulate`` calls assisted, learned from all rows: classes are codes to it."""
    X, y, _, setting = _question(
        table, target, organizations, "auto", label_holder, local_models, rounds, seed
    )
    del setting["class_names"]
    return METHODS["gal"](**setting).fit(X, y)


def _question(
    table: Any,
    target: str,
    organizations: Mapping[str, list[str]],
    metric: str,
    label_holder: str | None,
    local_models: Any,
    rounds: str | int,
    seed: int,
) -> tuple[pd.DataFrame, NDArray[Any], Metric, dict[str, Any]]:
    """Columns, labels (classes as codes), how they are judged, and what every method is made with."""
    X, y, names = _read(table, target, organizations)
    chosen = metric_for(metric, y)
    found, codes = np.unique(y, return_inverse=True) if chosen.classes else (None, y)
    setting = {
        "class_names": None if found is None else found.tolist(),
        "classes": chosen.classes,
        "organizations": names,
        "label_holder": check_label_holder(names, label_holder),
        "local_models": local_models,
        "rounds": rounds,
        "random_state": seed,
    }
    return X, codes, chosen, setting


def _covered(scores: Mapping[str, Interval]) -> float | None:
    way = scores["pooled"].value - scores["alone"].value
    return (scores["assisted"].value - scores["alone"].value) / way if way > 0 else None


def _left_out_outputs(
    data: tuple[pd.DataFrame, NDArray[Any]],
    setting: Mapping[str, Any],
    splits: list[tuple[NDArray[np.intp], NDArray[np.intp]]],
    joining: Joining,
    evidence: Evidence,
    say: OnStep,
    spread: Spread | None,
) -> tuple[str, dict[str, NDArray[Any]]]:
    """Which pooled model was chosen (once, on the first part), and everybody's outputs of all rows."""
    X, y = data
    outputs: dict[str, list[NDArray[Any]]] = {name: [] for name in COMPARED}
    for (train, test), models in zip(
        splits, _models(data, setting, splits, evidence, say, spread), strict=True
    ):
        for name, model in models.items():
            outputs[name].append(evidence.output(name, model, X.iloc[test]))
        evidence.learned(models["assisted"], len(train))
        joining.note(models["alone"], models["assisted"], (X.iloc[train], y[train]), X.iloc[test])
        picked = models["pooled"].chosen_
    return picked, {name: np.concatenate(parts) for name, parts in outputs.items()}


def _models(
    data: tuple[pd.DataFrame, NDArray[Any]],
    setting: Mapping[str, Any],
    splits: list[tuple[NDArray[np.intp], NDArray[np.intp]]],
    evidence: Evidence,
    say: OnStep,
    spread: Spread | None,
) -> Iterator[dict[str, Any]]:
    """By part: the three fitted models. The first part is done here, since others need what it picks."""
    X, y = data
    train, _ = splits[0]
    first = partial(_fit_part, X.iloc[train], y[train], setting, "", say, f"part 1 of {len(splits)}")
    models = first(evidence.message) if spread is None else with_one_core(first, (evidence.message,))
    picked = models["pooled"].chosen_
    yield models
    if spread is None:
        for index, (train, _) in enumerate(splits[1:], 2):
            part = f"part {index} of {len(splits)}"
            yield _fit_part(X.iloc[train], y[train], setting, picked, say, part)
        return
    cases = [(X.iloc[train], y[train], setting, picked) for train, _ in splits[1:]]
    for index, models in enumerate(spread.run(_fit_part, cases, in_order=True), 2):
        say(f"part {index} of {len(splits)}, assisted")
        yield models


def _fit_part(
    X: pd.DataFrame,
    y: NDArray[Any],
    setting: Mapping[str, Any],
    picked: str,
    say: OnStep | None = None,
    part: str = "",
    on_message: Any = None,
) -> dict[str, Any]:
    """The three models of one part; ``picked`` is the pooled one, where it was chosen already."""
    models: dict[str, Any] = {}
    for name, method in COMPARED.items():
        options: dict[str, Any] = {"candidates": [picked]} if name == "pooled" and picked else {}
        if say is not None:
            say(f"{part}, {name}")
        if name == "assisted" and say is not None:
            options["on_round"] = partial(_say_round, say, f"{part}, {name}", setting["rounds"])
        if name == "assisted" and on_message is not None:
            options["on_message"] = on_message
        models[name] = _fit(METHODS[method](**setting, **options), X, y)
    return models


def _say_nothing(step: str) -> None:
    """Nobody wants to hear of it."""


def _say_round(say: OnStep, where: str, rounds: str | int, progress: Any) -> None:
    most = "" if is_auto(rounds) else f" of at most {rounds}"
    say(f"{where}, round {len(progress.rounds)}{most}")


def _fit(model: Any, X: pd.DataFrame, y: NDArray[Any]) -> Any:
    """Fit; Ctrl-C ends everything, where an estimator alone would keep its finished rounds."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", InterruptedWarning)
            return model.fit(X, y)
    except (InterruptedWarning, NothingLearnedError) as ended:
        raise KeyboardInterrupt from ended


def target_column(frame: pd.DataFrame, target: str) -> pd.Series[Any]:
    """The column to predict; an error where there is none, or values of it are missing."""
    if target not in frame.columns:
        raise InvalidInputError(
            f"no column {target!r} to predict.{did_you_mean(target, frame.columns)} "
            f"The table has {', '.join(frame.columns[:20])}"
        )
    y = frame[target]
    if y.isna().any():
        raise InvalidLabelsError(
            f"{int(y.isna().sum())} of {len(y)} values of {target!r} are missing: remove these rows"
        )
    return y


def _read(
    table: Any, target: str, organizations: Mapping[str, list[str]]
) -> tuple[pd.DataFrame, NDArray[Any], dict[str, list[str]]]:
    frame = as_frame(table).rename(columns=str)
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
    return frame.drop(columns=[target]), plain_labels(y.to_numpy()), names


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


def _holdout(y: NDArray[Any], metric: Metric, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    splitter = StratifiedShuffleSplit if metric.classes else ShuffleSplit
    train, test = next(splitter(1, test_size=0.2, random_state=seed).split(np.zeros(len(y)), y))
    return train, test


def _splits(
    y: NDArray[Any], metric: Metric, folds: int | None, seed: int
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Five parts of a small table, three of a larger one, one test part of a very large one."""
    usual = 5 if len(y) <= 5_000 else 3 if len(y) <= 50_000 else 1
    smallest = int(np.unique(y, return_counts=True)[1].min()) if metric.classes else len(y)
    count = folds if folds is not None else min(usual, smallest)
    if count < 1 or (count > 1 and count > smallest):
        raise InvalidInputError(
            f"{count} parts need at least {count} rows"
            + (" of every class" if metric.classes else "")
            + f", the smallest has {smallest}: use --folds {smallest}, or leave it out"
        )
    if count == 1:
        if smallest < 2 or len(y) < 5 * (len(np.unique(y)) if metric.classes else 1):
            raise InvalidInputError(f"{len(y)} rows are too few to put a fifth of them aside")
        return [_holdout(y, metric, seed)]
    splitter = StratifiedKFold if metric.classes else KFold
    return list(splitter(count, shuffle=True, random_state=seed).split(np.zeros(len(y)), y))


def _refuse_rare(labels: NDArray[Any], metric: Metric, target: str) -> None:
    """Said before anything is learned: classes that no cross-validation can divide."""
    if not metric.classes:
        return
    classes, counts = np.unique(plain_labels(labels), return_counts=True)
    if len(classes) < 2:
        raise InvalidLabelsError(
            f"all {len(labels):,} values of {target!r} are {classes.tolist()[0]!r}: there is nothing to tell "
            "apart. Is it the right column?"
        )
    rare = classes[counts < 2].tolist()
    if rare:
        named = ", ".join(map(repr, rare[:5])) + (f" and {len(rare) - 5} more" if len(rare) > 5 else "")
        numbers = np.issubdtype(np.asarray(rare).dtype, np.number)
        raise InvalidLabelsError(
            f"{named} of {target!r}: there in one row only. A model cannot learn it and be tried on it. "
            "Leave these rows out, or put rare classes together."
            + (" (Are these numbers? Then --metric r2)" if numbers else "")
        )


def _bootstrap(
    metric: Metric, truth: NDArray[Any], outputs: Mapping[str, NDArray[Any]], seed: int, say: OnStep
) -> dict[str, Interval]:
    """Scores with 95 % percentile intervals; all models see the same resamples."""
    rng = np.random.default_rng(seed)
    values = {name: metric.score(truth, output) for name, output in outputs.items()}
    values["gain"] = values["assisted"] - values["alone"]
    drawn: dict[str, list[float]] = {name: [] for name in values}
    resamples = RESAMPLES if len(truth) <= 20_000 else 200
    n_classes = len(np.unique(truth)) if metric.classes else 0
    for index in range(resamples):
        if index % 50 == 0:  # scikit-learn's scorers take their time
            say(f"confidence intervals, {index:,} of {resamples:,} resamples")
        rows = rng.integers(0, len(truth), len(truth))
        if metric.classes and len(np.unique(truth[rows])) < n_classes:
            continue
        once = {name: metric.score(truth[rows], output[rows]) for name, output in outputs.items()}
        once["gain"] = once["assisted"] - once["alone"]
        for name, value in once.items():
            drawn[name].append(value)
    return {
        name: Interval(value, *(float(q) for q in np.quantile(drawn[name] or [value], [0.025, 0.975])))
        for name, value in values.items()
    }


def _joining(setting: Mapping[str, Any], metric: Metric, *, relearn: bool) -> Joining:
    """Who could join, and how a coalition is learned where the truth is asked for."""
    names, holder = setting["organizations"], setting["label_holder"]

    def learn_and_predict(some: list[str], X: Any, y: Any, left_out: Any) -> Any:
        models = setting["local_models"]
        chosen = (
            {name: models[name] for name in some if name in models} if isinstance(models, Mapping) else models
        )
        parts = {name: names[name] for name in some}
        model = METHODS["gal"](**{**setting, "organizations": parts, "local_models": chosen})
        return metric.output(_fit(model, X, y), left_out)

    others = [name for name in names if name != holder]
    return Joining(metric, holder, others, setting["random_state"], learn_and_predict if relearn else None)


def _contributions(shares: Shares | None, holder: str, alone: float) -> dict[str, float]:
    """Shares of all that was learned; all 0 where nothing was."""
    if shares is None:
        return {holder: 1.0 if alone > 0 else 0.0}
    parts = {holder: shares.own} | {name: one.value for name, one in shares.by_organization.items()}
    total = sum(parts.values())
    return {name: value / total if total > 0 else 0.0 for name, value in parts.items()}


__all__ = ["METRICS", "Interval", "Simulation", "assisted_model", "simulate"]
