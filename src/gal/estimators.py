"""GALClassifier and GALRegressor: the evaluator's way in, as scikit-learn estimators.

She has one pooled table and asks: would assistance help, and how close to pooling does it get?
Columns are divided among organizations; each sees only its own. Nothing else is special.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from gal.core.losses import BinaryLogLoss, Loss, MultinomialLogLoss
from gal.core.prediction import final_output, first_output, outputs_by_organization, staged_outputs
from gal.core.replies import Answers
from gal.core.state import Ensemble
from gal.core.steps import ENDED
from gal.core.task import Task
from gal.engine.columns import columns_by_organization, missing_columns, row_mask, view_of
from gal.engine.drivers import Traffic, drive_learning, drive_prediction, open_driver
from gal.engine.initial import FittedModel, check_initial
from gal.engine.labels import (
    Labels,
    check_class_labels,
    check_regression_labels,
    class_labels,
    regression_labels,
)
from gal.engine.observing import Clock, finished_round, show_progress
from gal.engine.options import Options, local_losses_by_name
from gal.engine.organization import Organization
from gal.engine.stacking import Closing, all_fitted, learn_closing
from gal.engine.task_making import make_task
from gal.errors import (
    InvalidColumnsError,
    InvalidInputError,
    InvalidOptionError,
    LocalModelError,
    StoredModelError,
)
from gal.models import PaperLinear, default_model, takes_missing_values
from gal.models.tabular import is_frame
from gal.privacy.protection import check_constant, check_privacy, check_public, protect, true_labels
from gal.privacy.refit import PrivateRefit, refit_privately
from gal.privacy.statements import statement
from gal.storage.archive import read_archive, write_archive
from gal.storage.fitted import find_models, number_models
from gal.warnings import GALWarning, InterruptedWarning, LeftOutWarning

if TYPE_CHECKING:  # learning and predicting with arrays do without pandas
    import pandas as pd

Floats = NDArray[np.float64]


class _GAL(BaseEstimator):  # type: ignore[misc]
    """What both estimators share; the parameters are described in ``docs/ref-options.md``."""

    def __init__(
        self,
        organizations: Mapping[str, Any] | None = None,
        *,
        label_holder: str | None = None,
        local_models: Any = None,
        rounds: int = 10,
        loss: Any = "auto",
        local_losses: Any = None,
        weights: Any = "auto",
        line_search: Any = "auto",
        initial: Any = "auto",
        fitted: str = "auto",
        validation_fraction: str | float | None = "auto",
        cross_validation: str | int = "auto",
        held_out_fraction: float = 0.1,
        n_folds: int = 5,
        fully_corrective: bool = False,
        closing: Any = "auto",
        scale_residual: str | bool = "auto",
        min_rate: float | None = 1e-6,
        patience: int | None = 3,
        plateau: float | None = None,
        preset: str = "default",
        privacy: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        on_round: Any = None,
        on_message: Any = None,
        verbose: int = 0,
    ) -> None:
        self.organizations = organizations
        self.label_holder = label_holder
        self.local_models = local_models
        self.rounds = rounds
        self.loss = loss
        self.local_losses = local_losses
        self.weights = weights
        self.line_search = line_search
        self.initial = initial
        self.fitted = fitted
        self.validation_fraction = validation_fraction
        self.cross_validation = cross_validation
        self.held_out_fraction = held_out_fraction
        self.n_folds = n_folds
        self.fully_corrective = fully_corrective
        self.closing = closing
        self.scale_residual = scale_residual
        self.min_rate = min_rate
        self.patience = patience
        self.plateau = plateau
        self.preset = preset
        self.privacy = privacy
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.on_round = on_round
        self.on_message = on_message
        self.verbose = verbose

    # --- learning

    def _fit(self, X: Any, labels: Labels, options: Options, sample_weight: Any) -> None:
        check_public(self.privacy, sample_weight, self.initial)
        members = self._make_organizations(X, options)
        self._loss: Loss = labels.loss
        self.closing_: Closing | None = None
        self.private_refit_: PrivateRefit | None = None
        self.privacy_ = statement(self.privacy)
        self._initial = check_initial(self.initial, labels.loss, self._feature_names, int(X.shape[1]))
        check_constant(self.privacy, self._initial)
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        losses = local_losses_by_name(self.local_losses, list(members))
        seen = protect(self.privacy, labels, options, seed=seed)
        task = make_task(
            seen.labels,
            list(members),
            seen.options,
            label_holder=self.label_holder_,
            label_holder_loss=losses[self.label_holder_],
            initial=self._initial.learn(X, self._own_view(X), seen.labels, weight),
            sample_weight=weight,
            moving=[name for name, one in members.items() if one.moves],
            release=seen.release,
            private=seen.private,
            seed=seed,
        )
        self.traffic_ = Traffic()
        if self.on_message is not None:
            self.task_rows_ = task.rows  # without them nobody could tell which rows a residual is of
        self.ensemble_, seconds = self._learn(task, members, labels if seen.private else None)
        self._organizations = members
        self._describe(seconds)
        for one in members.values():
            one.finish()
            one.view = np.empty((0, one.view.shape[1]))  # a fitted estimator keeps no training data

    def _learn(
        self, task: Task, members: Mapping[str, Organization], true_labels: Labels | None = None
    ) -> tuple[Ensemble, list[float]]:
        """Algorithm 1: the ensemble, and the seconds of its rounds; fitted models stay with the members.

        ``true_labels``, where the task learns from protected ones: for the private refit.
        """
        clock = Clock(self.on_round)
        with (
            open_driver("joblib", self.n_jobs) as run,
            show_progress(task.rounds, clock, show=bool(self.verbose)) as observer,
        ):
            ensemble = drive_learning(
                task, members, run, on_round=observer, traffic=self.traffic_, on_message=self.on_message
            )
        if task.keep_fitted and ensemble.asked():
            fitted = all_fitted(task, ensemble, clock.reached, members)
            if true_labels is not None:
                self.private_refit_ = refit_privately(
                    true_labels.y,
                    true_labels.loss,
                    fitted,
                    ensemble.coefficients,
                    task.first_output,
                    seed=task.seed,
                )
                return ensemble, clock.seconds
            own = None if isinstance(self.closing, str | bool) else self.closing
            try:
                self.closing_ = learn_closing(task, ensemble, fitted, own, self.n_jobs)
            except KeyboardInterrupt:
                warnings.warn(
                    "interrupted: the rounds are kept, without a closing model",
                    InterruptedWarning,
                    stacklevel=5,
                )
        return ensemble, clock.seconds

    def _make_organizations(self, X: Any, options: Options) -> dict[str, Organization]:
        names = self._feature_names
        self.columns_ = columns_by_organization(self.organizations, X, names)
        given = list(self.columns_)
        self.label_holder_ = given[0] if self.label_holder is None else self.label_holder
        if self.label_holder_ not in given:
            raise InvalidOptionError(
                f"label_holder {self.label_holder!r} is none of the organizations {', '.join(given)}"
            )
        losses = local_losses_by_name(self.local_losses, given)
        models = self._models_by_name(given, options)
        return {
            name: Organization(name, self._view(X, name), models[name], local_loss=losses[name])
            for name in sorted(given)
        }

    def _models_by_name(self, names: Sequence[str], options: Options) -> dict[str, Any]:
        standard: Any = default_model()
        if options.paper:
            local_loss = "l1" if isinstance(self, RegressorMixin) else "l2"
            standard = PaperLinear(local_loss, init_features=self.n_features_in_)
        if not isinstance(self.local_models, Mapping):
            return dict.fromkeys(names, standard if self.local_models is None else self.local_models)
        unknown = sorted(set(self.local_models) - set(names))
        if unknown:
            raise InvalidOptionError(
                f"local_models names {', '.join(map(repr, unknown))}, but the organizations are {', '.join(names)}"
            )
        return {name: self.local_models.get(name, standard) for name in names}

    def _describe(self, seconds: list[float]) -> None:
        """Public facts about the fit, and warnings about what a user must know."""
        self._seconds = seconds
        done = self.ensemble_.rounds
        known = seconds if self.ensemble_.track == "assisted" else []
        times = [*known, *[float("nan")] * (len(done) - len(known))]
        self.rounds_ = [finished_round(one, spent) for one, spent in zip(done, times, strict=False)]
        self.n_rounds_ = self.ensemble_.n_rounds
        self.contributions_ = dict(self.ensemble_.contributions)
        if self.ensemble_.stopped.startswith(ENDED):
            warnings.warn(
                f"interrupted: the {len(done)} finished rounds are kept", InterruptedWarning, stacklevel=4
            )
        left_out = {name: why for one in done for name, why in one.left_out.items()}
        for name, why in left_out.items():
            missed = [str(one.round) for one in done if name in one.left_out]
            warnings.warn(
                f"organization {name!r} was left out of round {', '.join(missed)}: {why}",
                LeftOutWarning,
                stacklevel=4,
            )

    @property
    def local_models_(self) -> dict[str, dict[int, tuple[Any, ...]]]:
        """The fitted local models of each organization by round: one each, or one per fold."""
        check_is_fitted(self, "ensemble_")
        return {
            name: {round: models for (track, round), models in one.models.items() if track == "assisted"}
            for name, one in self._organizations.items()
        }

    # --- prediction

    def _output(self, X: Any, missing: Any = None) -> Floats:
        table, answers = self._ask(X, missing)
        return self._closed(final_output(self.ensemble_, answers, self._first(table)), answers)

    def _staged_outputs(self, X: Any) -> Iterator[Floats]:
        table, answers = self._ask(X, None)
        if self.n_rounds_ == 0:
            yield first_output(self.ensemble_, len(answers.degraded), self._first(table))
        for done, output in enumerate(staged_outputs(self.ensemble_, answers, self._first(table)), 1):
            yield self._closed(output, answers) if done == self.n_rounds_ else output

    def _closed(self, output: Floats, answers: Answers) -> Floats:
        """F^T as far as the closing model moves it; not where an answer is missing, which it never met.

        Under a privacy guarantee: what the private refit makes of the same answers.
        """
        if self.private_refit_ is not None:
            return self.private_refit_.output(_by_round(answers, self.n_rounds_))
        if self.closing_ is None or answers.degraded.all():
            return output
        rounds = [
            {name: answers.values[name][index] for name in counts}
            for index, counts in enumerate(self.ensemble_.coefficients)
        ]
        closed = self.closing_.output(self._loss, output, rounds)
        return np.where(answers.degraded[:, None], output, closed)

    def _ask(self, X: Any, missing: Any) -> tuple[Any, Answers]:
        check_is_fitted(self, "ensemble_")
        unasked, unknown = self._read_missing(missing, X)
        table = self._check_table(X, reset=False, lenient=missing is not None)
        asked = [name for name in self.ensemble_.asked() if name not in unasked]
        views = {name: self._view(table, name) for name in asked}
        with open_driver("joblib", self.n_jobs) as run:
            answers = drive_prediction(
                self.ensemble_, self._organizations, views, int(table.shape[0]), run, unknown
            )
        failed = [name for name in answers.missing if name not in unasked]
        if failed:
            reasons = "; ".join(f"{name} {answers.missing[name]}" for name in failed)
            raise LocalModelError(f"{reasons}. Pass missing={failed} to predict without.")
        return table, answers

    def _first(self, table: Any) -> Floats | None:
        if self.ensemble_.initial is not None:
            return None
        own_view = self._own_view(table) if isinstance(self._initial, FittedModel) else None
        return self._initial.output(table, own_view)

    def _read_missing(self, missing: Any, X: Any) -> tuple[set[str], dict[str, NDArray[np.bool_]]]:
        """Who is not asked at all, and which rows others do not know."""
        if missing is None:
            return set(), {}
        by_row = dict(missing) if isinstance(missing, Mapping) else {}
        names = set(by_row) if by_row else {missing} if isinstance(missing, str) else set(missing)
        strangers = sorted(names - set(self.ensemble_.organizations))
        if strangers:
            raise InvalidInputError(
                f"missing names {', '.join(map(repr, strangers))}, but the organizations are "
                f"{', '.join(self.ensemble_.organizations)}"
            )
        n_rows = int(X.shape[0]) if hasattr(X, "shape") else len(X)
        unknown = {name: row_mask(name, rows, n_rows) for name, rows in by_row.items()}
        unasked = {name for name, rows in unknown.items() if rows.all()} if by_row else names
        return unasked, unknown

    def explain(self, X: Any) -> pd.DataFrame:
        """What each organization adds to the output of each row; the columns sum to it exactly.

        In link space (log-odds for two classes). ``base`` is the average output; an organization's
        part is its deviation from its own average, so a useless one has about 0. Where a closing model
        takes part, ``closing model`` is what it adds to their sum; ``private refit`` likewise. With several
        outputs the columns are pairs (organization, output).
        """
        import pandas as pd

        table, answers = self._ask(X, None)
        parts = outputs_by_organization(self.ensemble_, answers)
        base = first_output(self.ensemble_, len(answers.degraded), self._first(table)).copy()
        for name, part in parts.items():
            average = self._average_part(name)
            part -= average
            base += average
        columns = {"base": base, **parts}
        if self.closing_ is not None or self.private_refit_ is not None:
            output = final_output(self.ensemble_, answers, self._first(table))
            name = "closing model" if self.private_refit_ is None else "private refit"
            columns[name] = self._closed(output, answers) - output
        index = table.index if is_frame(table) else None
        if self.ensemble_.n_outputs == 1:
            return pd.DataFrame({name: part[:, 0] for name, part in columns.items()}, index=index)
        outputs = self._output_names()
        return pd.DataFrame(
            {
                (name, output): part[:, k]
                for name, part in columns.items()
                for k, output in enumerate(outputs)
            },
            index=index,
        )

    def _average_part(self, name: str) -> Floats:
        average = np.zeros(self.ensemble_.n_outputs)
        for counts, done in zip(self.ensemble_.coefficients, self.ensemble_.rounds, strict=False):
            if name in counts:
                average += counts[name] * np.asarray(done.mean_fitted[name])
        return average

    def _output_names(self) -> list[Any]:
        return list(range(self.ensemble_.n_outputs))

    # --- storing

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file, without pickle; ``load`` reads it back."""
        check_is_fitted(self, "ensemble_")
        fitted_models = {name: one.models for name, one in self._organizations.items()}
        distinct, places = number_models(fitted_models)
        templates = {name: one.model for name, one in self._organizations.items()}
        refit = None if self.private_refit_ is None else self.private_refit_.to_json()
        facts = {
            "class": type(self).__name__,
            "columns": self.columns_,
            "label_holder": self.label_holder_,
            "private_refit": refit,
        }
        fitted = {name: value for name, value in vars(self).items() if name in _STORED}
        parameters = self.get_params(deep=False) | {"on_round": None, "on_message": None}
        objects = {"models": distinct, "places": places, "templates": templates, "fitted": fitted}
        write_archive(path, facts, self.ensemble_, objects | {"parameters": parameters})

    @classmethod
    def load(cls, path: str | Path, *, trusted: Sequence[str] = ()) -> Self:
        """Read a saved estimator; types of other packages than scikit-learn must be ``trusted``."""
        facts, ensemble, objects = read_archive(path, trusted)
        if facts["class"] != cls.__name__ or ensemble is None:
            raise StoredModelError(f"{str(path)!r} holds a {facts['class']}: use {facts['class']}.load")
        loaded = cls(**objects["parameters"])
        for name, value in objects["fitted"].items():
            setattr(loaded, name, value)
        loaded.columns_ = facts["columns"]
        loaded.label_holder_ = facts["label_holder"]
        loaded.ensemble_ = ensemble
        refit = facts.get("private_refit")
        loaded.private_refit_ = None if refit is None else PrivateRefit.from_json(refit)
        loaded._organizations = {}
        for name, places in objects["places"].items():
            one = Organization(name, np.empty((0, 1)), objects["templates"][name])
            one.models.update(find_models(objects["models"], places))
            loaded._organizations[name] = one
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GALWarning)  # said when it was learned
            loaded._describe(objects["fitted"].get("_seconds", []))
        return loaded

    # --- tables

    def _check_table(self, X: Any, *, reset: bool, lenient: bool = False) -> Any:
        """The table as given (frames stay frames), with scikit-learn's own error messages."""
        if hasattr(X, "columns") and hasattr(X, "shape"):
            if not lenient or self._feature_names is None:
                validate_data(self, X, reset=reset, skip_check_array=True)
            if X.shape[0] == 0:
                raise InvalidInputError(
                    f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required."
                )
            if X.shape[1] == 0:
                raise InvalidColumnsError(f"0 feature(s) (shape={X.shape}) while a minimum of 1 is required.")
            return X
        text = np.asarray(X).dtype.kind in "OUS" if not hasattr(X, "tocsr") else False
        return validate_data(
            self,
            X,
            reset=reset,
            dtype=None if text and self._takes_text() else "numeric",
            ensure_all_finite=False if lenient else self._finite(),
        )

    def _takes_text(self) -> bool:
        return self.local_models is None and self.preset != "paper"

    def _finite(self) -> bool | str:
        models = self.local_models
        if models is None:
            return True if self.preset == "paper" else "allow-nan"
        chosen = list(models.values()) if isinstance(models, Mapping) else [models]
        instances = not any(
            isinstance(one, type) for one in chosen
        )  # a class gets its error from Organization
        return "allow-nan" if instances and all(map(takes_missing_values, chosen)) else True

    @property
    def _feature_names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    def _view(self, X: Any, name: str) -> Any:
        names = self._feature_names
        own = None if names is None else [names[position] for position in self.columns_[name]]
        lacking = missing_columns(X, own)
        if lacking:
            raise InvalidColumnsError(
                f"organization {name!r}: the table lacks its columns {', '.join(lacking)}; "
                f"pass missing=[{name!r}] to predict without it"
            )
        return view_of(X, self.columns_[name], own)

    def _own_view(self, X: Any) -> Any:
        return self._view(X, self.label_holder_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._finite() == "allow-nan"
        tags.input_tags.string = tags.input_tags.categorical = self._takes_text()
        return tags


class GALRegressor(MultiOutputMixin, RegressorMixin, _GAL):  # type: ignore[misc]
    """Gradient Assisted Learning for regression.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> clinic, lab = ["age", "sex", "bmi", "bp"], ["s1", "s2", "s3", "s4", "s5", "s6"]
    >>> model = GALRegressor({"clinic": clinic, "lab": lab}).fit(X, y)
    >>> bool(model.score(X, y) > 0.5)
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn ``y`` (n,) or (n, K) from the organizations' columns of ``X``."""
        options = _options(self)
        check_privacy(self.privacy)
        table = self._check_table(X, reset=True)
        target = check_regression_labels(y, int(table.shape[0]))
        self._single_output = target.ndim == 1
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, target)
        self._fit(table, true_labels(self.privacy, target, options, regression_labels), options, weight)
        return self

    def predict(self, X: Any, missing: Any = None) -> Floats:
        """Predictions; ``missing`` names organizations that cannot be asked, or maps them to rows."""
        return self._prediction(self._output(X, missing))

    def staged_predict(self, X: Any) -> Iterator[Floats]:
        """Predictions after each round."""
        for output in self._staged_outputs(X):
            yield self._prediction(output)

    def _prediction(self, output: Floats) -> Floats:
        prediction = self._loss.inverse_link(output)
        return prediction[:, 0] if self._single_output else prediction


class GALClassifier(ClassifierMixin, _GAL):  # type: ignore[misc]
    """Gradient Assisted Learning for classification.

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> parts = {"radiology": range(10), "pathology": range(10, 20), "genetics": range(20, 30)}
    >>> model = GALClassifier(parts).fit(X, y)
    >>> bool(model.score(X, y) > 0.97)
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the classes ``y`` (n,) from the organizations' columns of ``X``."""
        options = _options(self)
        check_privacy(self.privacy)
        table = self._check_table(X, reset=True)
        target = check_class_labels(y, int(table.shape[0]))
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, target)
        labels = true_labels(self.privacy, target, options, class_labels)
        self.classes_: NDArray[Any] = np.asarray(labels.classes)
        self._fit(table, labels, options, weight)
        return self

    def decision_function(self, X: Any, missing: Any = None) -> Floats:
        """Outputs: the log-odds of the second of two classes (n,), or one per class (n, C)."""
        return self._decision(self._output(X, missing))

    def predict_proba(self, X: Any, missing: Any = None) -> Floats:
        """Class probabilities, shape (n, C)."""
        return self._probabilities(self._output(X, missing))

    def predict(self, X: Any, missing: Any = None) -> NDArray[Any]:
        """The most probable class; ``missing`` names organizations that cannot be asked."""
        return self._classes_of(self._output(X, missing))

    def staged_predict_proba(self, X: Any) -> Iterator[Floats]:
        """Class probabilities after each round."""
        for output in self._staged_outputs(X):
            yield self._probabilities(output)

    def staged_predict(self, X: Any) -> Iterator[NDArray[Any]]:
        """The most probable class after each round."""
        for output in self._staged_outputs(X):
            yield self._classes_of(output)

    def _probabilities(self, output: Floats) -> Floats:
        if isinstance(self._loss, BinaryLogLoss | MultinomialLogLoss):
            return self._loss.inverse_link(output)
        # A loss of the user's own: its outputs are read as those of a log loss.
        standard = BinaryLogLoss() if output.shape[1] == 1 else MultinomialLogLoss(output.shape[1])
        return standard.inverse_link(output)

    def _decision(self, output: Floats) -> Floats:
        if len(self.classes_) > 2:
            return output
        return output[:, 0] if output.shape[1] == 1 else output[:, 1] - output[:, 0]

    def _classes_of(self, output: Floats) -> NDArray[Any]:
        chosen = self._decision(output)
        codes = (chosen > 0).astype(int) if chosen.ndim == 1 else chosen.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def _output_names(self) -> list[Any]:
        return list(self.classes_)


_STORED = frozenset(
    {
        *("classes_", "n_features_in_", "feature_names_in_", "_single_output"),
        *("_loss", "_initial", "_seconds", "closing_", "privacy_"),
    }
)


def _by_round(answers: Answers, rounds: int) -> list[dict[str, NDArray[np.float32]]]:
    """What every organization that was asked said of each round."""
    return [{name: values[index] for name, values in answers.values.items()} for index in range(rounds)]


def _options(estimator: _GAL) -> Options:
    names = Options.__dataclass_fields__
    return Options(**{name: getattr(estimator, name) for name in names})
