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

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gal.core.contributions import Contributions
from gal.engine.labels import LARGEST_NUMBER, plain_labels
from gal.engine.observing import LearningCurve
from gal.engine.options import is_auto
from gal.errors import InvalidInputError, InvalidLabelsError, NothingLearnedError, did_you_mean
from gal.evaluate.comparing.intervals import Interval, Verdict, interval_of, scored, verdict_of
from gal.evaluate.comparing.splitting import Splits, splits_of
from gal.evaluate.contribution_scores import Joining
from gal.evaluate.evidence import Evidence, Exchange
from gal.evaluate.methods import alone, check_label_holder, gal
from gal.evaluate.metrics import METRICS, Metric, metric_for
from gal.evaluate.pooled import pooled
from gal.evaluate.probe_gain import ProbeGain, probe_gain
from gal.evaluate.profile import Remark, profile_of
from gal.evaluate.quality import Quality
from gal.evaluate.understood import OnColumns, UsedColumn, target_column, told_models, understood
from gal.models.reading.converting import reading_of
from gal.models.tabular.frames import as_frame
from gal.warnings import InterruptedWarning

OnStep = Callable[[str], None]
"""Gets a sentence about what is done now."""


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
    exchange: Exchange | None = None
    """What would move between the organizations, measured while the first part was learned."""
    setting: Mapping[str, Any] = field(default_factory=dict)
    """How it was computed: rounds, parts, seed."""
    software: Mapping[str, str] = field(default_factory=dict)
    """What computed it, with versions."""

    @property
    def covered(self) -> float | None:
        """Share of the pooling gain, at most 1; None where the gain, or the pooling gain, may be chance."""
        if not self._has_share:
            return None
        return min((self.assisted.value - self._best_alone) / self.pooling_gain.value, 1.0)

    @property
    def covered_by_log_loss(self) -> float | None:
        """The same in log loss, mostly less than in AUC; negative where it is worse than alone."""
        losses = self.log_losses
        if losses is None or not self._has_share:
            return None
        alone = min(losses["alone"], losses.get("alone_tuned", losses["alone"]))
        if not losses["pooled"] < alone:
            return None
        return min((alone - losses["assisted"]) / (alone - losses["pooled"]), 1.0)

    @property
    def _best_alone(self) -> float:
        tuned = self.alone_tuned
        return self.alone.value if tuned is None else max(self.alone.value, tuned.value)

    @property
    def _has_share(self) -> bool:
        return self.verdict is Verdict.GAIN and self.pooling_gain.low > 0

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
        facts["covered_by_log_loss"] = self.covered_by_log_loss
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
    started, say = time.perf_counter(), on_step or (lambda _: None)
    frame = as_frame(table).rename(columns=str)
    asked = frame, target, organizations, metric, label_holder, local_models, rounds, seed
    X, y, chosen, setting = _question(*asked)
    X, columns = _understood(X, frame, setting, kinds, on_columns)
    evidence = Evidence(chosen, setting.pop("class_names"), setting["label_holder"])
    splits = splits_of(y, classes=chosen.classes, folds=folds, seed=seed)
    others = [name for name in setting["organizations"] if name != setting["label_holder"]]
    joining = Joining(chosen, others, seed)
    picked, outputs = _left_out_outputs(X, y, setting, splits, joining, evidence, say)
    probes = probe_gain(X, y, setting, chosen, _fit, say)
    truth = y[splits.rows]
    say("confidence intervals")
    return Simulation(
        metric=chosen.name,
        **_decided(chosen, truth, outputs, splits, joining),
        label_holder=setting["label_holder"],
        organizations=setting["organizations"],
        target=target,
        rows=len(y),
        predicted_rows=len(truth),
        seconds=time.perf_counter() - started,
        pooled_model=picked["pooled"],
        alone_tuned_model=picked.get("alone_tuned"),
        rounds_used=joining.rounds,
        assistance_used=joining.used,
        profile=profile_of(frame, target, setting["organizations"], columns, classes=chosen.classes),
        columns=columns,
        setting={
            "rounds": rounds,
            "seed": seed,
            "parts": len(splits.repeats[0]),
            "repeats": len(splits.repeats),
        },
        interaction_probes=probes,
        **evidence.facts(truth, splits),
    )


def _decided(
    metric: Metric,
    truth: NDArray[Any],
    outputs: Mapping[str, list[NDArray[Any]]],
    splits: Splits,
    joining: Joining,
) -> dict[str, Any]:
    """Scores, gains, the verdict and contributions, from everybody's outputs of the rows left out."""
    scores = {name: scored(metric, truth, splits.gathered(each), splits) for name, each in outputs.items()}
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
    frame = as_frame(table).rename(columns=str)
    X, _ = _understood(X, frame, setting)
    return gal(**setting).fit(X, y)


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
    _refuse_rare(y, chosen, target)
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


def _understood(
    X: pd.DataFrame,
    frame: pd.DataFrame,
    setting: dict[str, Any],
    kinds: Mapping[str, str] | None = None,
    on_columns: OnColumns | None = None,
) -> tuple[pd.DataFrame, list[UsedColumn]]:
    """What was understood of the columns; models and methods are told."""
    columns = understood(frame, setting["organizations"], kinds, on_columns)
    X, setting["local_models"] = told_models(X, columns, setting["local_models"])
    return X, columns


def _left_out_outputs(
    X: pd.DataFrame,
    y: NDArray[Any],
    setting: Mapping[str, Any],
    splits: Splits,
    joining: Joining,
    evidence: Evidence,
    say: OnStep,
) -> tuple[dict[str, str], dict[str, list[NDArray[Any]]]]:
    """Which tuned models were chosen most often, and by split everybody's outputs of the rows left out."""
    outputs: dict[str, list[NDArray[Any]]] = {}
    picked: dict[str, list[str]] = {}
    for index, split in enumerate(splits, 1):
        test = X.iloc[split.test]
        models = _models(
            X.iloc[split.train], y[split.train], setting, evidence, say, f"part {index} of {len(splits)}"
        )
        for name, model in models.items():
            outputs.setdefault(name, []).append(evidence.output(name, model, test))
            if hasattr(model, "chosen_"):
                picked.setdefault(name, []).append(model.chosen_)
        evidence.learned(models["assisted"], len(split.train))
        joining.note(models["alone"], models["assisted"], test)
    return {name: Counter(chosen).most_common(1)[0][0] for name, chosen in picked.items()}, outputs


def _models(
    X: pd.DataFrame,
    y: NDArray[Any],
    setting: Mapping[str, Any],
    evidence: Evidence,
    say: OnStep,
    part: str,
) -> dict[str, Any]:
    """The models of one split, fitted; tuned ones are chosen on its training rows."""
    holder, organizations = setting["label_holder"], setting["organizations"]
    tuned = {name: value for name, value in setting.items() if name != "rounds"}
    say(f"{part}, alone")
    models = {"alone": _fit(alone(**setting), X, y)}
    if len(organizations) > 1:  # else assisted is alone
        own = {holder: organizations[holder]}
        models["alone_tuned"] = _fit(pooled(**{**tuned, "organizations": own}), X, y)
    say(f"{part}, assisted")
    on_round = partial(_say_round, say, f"{part}, assisted", setting["rounds"])
    assisted = gal(**setting, on_round=on_round, on_message=evidence.message)
    models["assisted"] = _fit(assisted, X, y)
    say(f"{part}, pooled")
    models["pooled"] = _fit(pooled(**tuned), X, y)
    return models


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
        read = reading_of(pd.Series(labels), target)
        words = [] if read is None else read.how.get("words", [])
        raise InvalidLabelsError(
            f"{named} of {target!r}: there in one row only. A model cannot learn it and be tried on it. "
            "Leave these rows out, or put rare classes together."
            + (" (Are these numbers? Then --metric r2)" if read is None else "")
            + (f" (Are these numbers? Then correct {words[0]!r}, which is none)" if words else "")
        )


__all__ = ["METRICS", "Interval", "Simulation", "Verdict", "assisted_model", "simulate"]
