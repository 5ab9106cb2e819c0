"""GALClassifier and GALRegressor: the evaluator's way in, as scikit-learn estimators.

The columns of one pooled table are divided among organizations; each sees only its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from gal.assembling import (
    GROUPS,
    Algorithm,
    AssembledTask,
    Learned,
    Validation,
    assemble,
    flat_options,
    group_of,
    grouped,
)
from gal.core.losses import BinaryLogLoss, Loss, MultinomialLogLoss
from gal.core.missing import expected_loss
from gal.core.replies import LocalPredictions
from gal.core.state import Progress
from gal.errors import InvalidOptionError, StoredModelError
from gal.learner.assisted_model import AssistedModel, frame_of_parts, read_missing
from gal.learner.columns import DividedColumns, check_table, columns_by_organization, plain_columns
from gal.learner.drivers import MessageObserver, Traffic
from gal.learner.initial import ScoreColumn, check_initial
from gal.learner.labels import (
    Labels,
    check_class_labels,
    check_regression_labels,
    class_labels,
    regression_labels,
)
from gal.learner.observing import finished_rounds, warn_of
from gal.learner.options import Options, option_by_name
from gal.learner.organization import Organization
from gal.models import PaperLinear, default_model, takes_missing_values
from gal.models.tabular.columns import is_frame
from gal.privacy.mechanisms.contract import statement
from gal.privacy.protection import check_constant, check_privacy, check_public, true_labels
from gal.privacy.refit import PrivateRefit
from gal.secure_aggregation.asking import predicting_model
from gal.storage.archive import read_archive, write_archive
from gal.storage.fitted import organizations_as_objects, organizations_from_objects

if TYPE_CHECKING:  # learning and predicting with arrays do without pandas
    import pandas as pd

Floats = NDArray[np.float64]


class _GAL(BaseEstimator):  # type: ignore[misc]
    """What both estimators share; the parameters are described in ``docs/reference/python.md``."""

    def __init__(
        self,
        organizations: Mapping[str, Any] | None = None,
        *,
        label_holder: str | None = None,
        local_models: Any = None,
        rounds: str | int = "auto",
        loss: Any = "auto",
        class_weight: Any = None,
        interactions: bool | int = False,
        validation: Validation | None = None,
        algorithm: Algorithm | None = None,
        privacy: Any = None,
        secure_aggregation: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.organizations, self.label_holder, self.local_models = organizations, label_holder, local_models
        self.rounds, self.loss, self.class_weight = rounds, loss, class_weight
        self.interactions, self.validation, self.algorithm = interactions, validation, algorithm
        self.privacy, self.secure_aggregation = privacy, secure_aggregation
        self.n_jobs, self.random_state, self.verbose = n_jobs, random_state, verbose

    def set_params(self, **params: Any) -> Self:
        """Set parameters; those of a group by names such as ``validation__folds``."""
        for name, kind in GROUPS.items():
            if getattr(self, name) is None and any(one.startswith(f"{name}__") for one in params):
                setattr(self, name, kind())
        found: Self = super().set_params(**params)
        return found

    # --- learning

    _check: Callable[[Any, int], NDArray[Any]]
    _read: Callable[[Any, Options], Labels]
    """How labels are checked, and turned into what the loss wants."""

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        on_round: Callable[[Progress], None] | None = None,
        on_message: MessageObserver | None = None,
    ) -> Self:
        """Learn labels ``y`` (n,), or numbers (n, K), from the organizations' columns of ``X``.

        ``on_round`` gets a `Progress` after every round; ``on_message`` the requests and replies of every
        round trip.
        """
        check, read = type(self)._check, type(self)._read
        options, initial = self._options(), group_of("algorithm", self.algorithm).initial
        check_privacy(self.privacy)
        X = self._check_table(X, reset=True)
        target = check(y, int(X.shape[0]))
        self._single_output = target.ndim == 1
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, target)
        labels = true_labels(self.privacy, target, options, read)
        check_public(self.privacy, weight, initial)
        members = self._make_organizations(X, options)
        columns = self._columns()
        self._loss: Loss = labels.loss
        self._initial = start = check_initial(initial, columns.names, X)
        check_constant(self.privacy, start)
        self.privacy_ = statement(self.privacy)
        self.traffic_ = Traffic()
        learning = assemble(
            labels,
            members,
            options,
            label_holder=self.label_holder_,
            initial=lambda seen: start.learn(X, seen, weight) if isinstance(start, ScoreColumn) else start,
            sample_weight=weight,
            seed=int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
            n_jobs=self.n_jobs,
            traffic=self.traffic_,
            privacy=self.privacy,
            secure_aggregation=self.secure_aggregation,
            refits=True,
        )
        if on_message is not None:
            self.task_rows_ = learning.task.rows  # by these an observer knows the rows of a residual
        ensemble, self._seconds, self.private_refit_ = self._learn(
            learning, on_round=on_round, on_message=on_message
        )
        self.ensemble_ = replace(ensemble, cv=None)
        self._organizations = members
        self._describe()
        warn_of(self.ensemble_, stacklevel=4)
        for one in members.values():
            one.finish()
            one.view = np.empty((0, one.view.shape[1]))  # a fitted estimator keeps no training data
        if labels.classes is not None:
            self.classes_: NDArray[Any] = np.asarray(labels.classes)
        return self

    def _learn(self, learning: AssembledTask, **observers: Any) -> Learned:
        """Algorithm 1; fitted models stay with the organizations."""
        return learning.run(self.n_jobs, show=bool(self.verbose), **observers)

    def _options(self) -> Options:
        return flat_options(self.get_params(deep=False))

    def _make_organizations(self, X: Any, options: Options) -> dict[str, Organization]:
        self.columns_ = columns_by_organization(self.organizations, X, _feature_names(self))
        given = list(self.columns_)
        self.label_holder_ = given[0] if self.label_holder is None else self.label_holder
        if self.label_holder_ not in given:
            raise InvalidOptionError(
                f"label_holder {self.label_holder!r} is none of the organizations {', '.join(given)}"
            )
        standard: Any = default_model()
        if options.paper:
            local_loss = "l1" if isinstance(self, RegressorMixin) else "l2"
            standard = PaperLinear(local_loss, init_features=self.n_features_in_)
        losses = option_by_name("local_losses", group_of("algorithm", self.algorithm).local_losses, given)
        models = option_by_name("local_models", self.local_models, given, standard)
        columns = self._columns()
        return {
            name: Organization(name, columns.view(X, name), models[name], local_loss=losses[name])
            for name in sorted(given)
        }

    def _describe(self) -> None:
        """Public facts about the fit."""
        self.rounds_ = finished_rounds(self.ensemble_, self._seconds)
        self.n_rounds_ = self.ensemble_.n_rounds
        self.contributions_ = self.ensemble_.contributions
        self.stacker_ = self.ensemble_.stacker
        self.probes_ = self.ensemble_.probes

    @property
    def local_models_(self) -> dict[str, dict[int, tuple[Any, ...]]]:
        """The fitted local models of each organization by round: one each, or one per fold."""
        check_is_fitted(self, "ensemble_")
        return {
            name: {round: models for (track, round), models in one.models.items() if track == "assisted"}
            for name, one in self._organizations.items()
        }

    # --- prediction

    def _replies(self, X: Any, missing: Any = None) -> tuple[AssistedModel, Any, LocalPredictions]:
        """What was learned, the table as it was checked, and what the organizations say of its rows."""
        check_is_fitted(self, "ensemble_")
        unasked = read_missing(missing, tuple(self._organizations), X)
        table = self._check_table(X, reset=False, lenient=missing is not None)
        own = (self._initial, self.private_refit_, self.n_jobs)
        model = predicting_model(self.ensemble_, self._organizations, self._columns(), *own)
        return model, table, model.ask(table, unasked)

    def _output(self, X: Any, missing: Any = None) -> Floats:
        model, table, replies = self._replies(X, missing)
        return model.output(table, replies)

    def _staged_outputs(self, X: Any) -> Iterator[Floats]:
        model, table, replies = self._replies(X)
        yield from model.staged(table, replies)

    def explain(self, X: Any) -> pd.DataFrame:
        """What each organization adds to the output of each row; the columns sum to it exactly.

        In link space (log-odds for two classes). ``base`` is the average output; an organization's
        part is its deviation from its own average, so a useless one has about 0. Where a stacker or
        interaction probes take part, ``stacker`` is what they add to their sum; ``private refit``
        likewise. With several outputs the columns are pairs (organization, output).
        """
        model, table, replies = self._replies(X)
        index = table.index if is_frame(table) else None
        outputs = getattr(self, "classes_", range(self.ensemble_.n_outputs))
        return frame_of_parts(model.parts(table, replies), list(outputs), index)

    def expected_loss(self, missing: Sequence[str] = ()) -> float | None:
        """The mean loss to expect of new rows without these organizations; None where no rows say so."""
        check_is_fitted(self, "ensemble_")
        unasked, kept = read_missing(missing, tuple(self._organizations), ()), self.ensemble_.kept_replies
        return expected_loss(kept, sorted(unasked.organizations))

    # --- storing

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file, without pickle; ``load`` reads it back."""
        check_is_fitted(self, "ensemble_")
        facts = {
            "class": type(self).__name__,
            "columns": self.columns_,
            "label_holder": self.label_holder_,
            "private_refit": None if self.private_refit_ is None else self.private_refit_.to_json(),
        }
        objects = organizations_as_objects(self._organizations)
        objects["fitted"] = {name: value for name, value in vars(self).items() if name in _STORED}
        columns = {"organizations": plain_columns(self.organizations)}
        objects["parameters"] = self.get_params(deep=False) | columns
        objects["own_stacker"] = self.private_refit_ and self.private_refit_.own_stacker
        write_archive(path, facts, self.ensemble_, objects)

    @classmethod
    def load(cls, path: str | Path, *, trusted: Sequence[str] = ()) -> Self:
        """Read a saved estimator; types of other packages than scikit-learn must be ``trusted``."""
        facts, ensemble, objects = read_archive(path, trusted)
        if facts["class"] != cls.__name__ or ensemble is None:
            raise StoredModelError(f"{str(path)!r} holds a {facts['class']}: use {facts['class']}.load")
        loaded = cls(**grouped(objects["parameters"]))
        for name, value in objects["fitted"].items():
            setattr(loaded, name, value)
        loaded.columns_ = facts["columns"]
        loaded.label_holder_ = facts["label_holder"]
        loaded.ensemble_ = ensemble
        refit = facts["private_refit"]
        loaded.private_refit_ = (
            None if refit is None else PrivateRefit.from_json(refit).with_stacker(objects["own_stacker"])
        )
        loaded._organizations = organizations_from_objects(objects)
        loaded._describe()
        return loaded

    # --- tables

    def _columns(self) -> DividedColumns:
        return DividedColumns(self.columns_, _feature_names(self))

    def _check_table(self, X: Any, *, reset: bool, lenient: bool = False) -> Any:
        takes = self.__sklearn_tags__().input_tags
        finite = "allow-nan" if takes.allow_nan else True
        return check_table(self, X, reset=reset, text=takes.string, finite=finite, lenient=lenient)

    def __sklearn_tags__(self) -> Any:
        tags, models = super().__sklearn_tags__(), self.local_models
        default = models is None and group_of("algorithm", self.algorithm).preset != "paper"
        chosen = list(models.values()) if isinstance(models, Mapping) else [models]
        instances = not any(isinstance(one, type) for one in chosen)  # a class gets its error later
        takes = instances and all(map(takes_missing_values, chosen))
        tags.input_tags.allow_nan = default or takes
        tags.input_tags.string = tags.input_tags.categorical = default
        return tags


class GALRegressor(MultiOutputMixin, RegressorMixin, _GAL):  # type: ignore[misc]
    """Gradient Assisted Learning for regression.

    Parameters
    ----------
    organizations: mapping name -> columns: names, positions, a slice, a mask, a callable or selector.
    label_holder: the organization with the labels; None: the first.
    local_models: one regressor or pipeline for all, or a mapping by name; None: ``gal.models.TabularModel``.
    rounds: the most assistance rounds; "auto": 10, or up to 20 in cross-validated tables.
    loss: the overarching loss, by name or as a pair of functions.
    class_weight: weights of classes; None, "balanced" or a mapping.
    interactions: interaction probes, which reveal columns: False, True, or the most per organization.
    validation, algorithm: a `Validation` and an `Algorithm`; None: their defaults.
    privacy: a label mechanism of ``gal.privacy``, or None.
    secure_aggregation: None, "sums" or a ``gal.secure_aggregation.Sums``.
    n_jobs: organizations fitted at a time, by joblib; None: one.
    random_state: the seed of row roles and local models.
    verbose: 1 draws a progress bar.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> clinic, lab = ["age", "sex", "bmi", "bp"], ["s1", "s2", "s3", "s4", "s5", "s6"]
    >>> model = GALRegressor({"clinic": clinic, "lab": lab}).fit(X, y)
    >>> bool(model.score(X, y) > 0.5)
    True
    """

    _check, _read = staticmethod(check_regression_labels), staticmethod(regression_labels)

    def predict(self, X: Any, missing: Any = None) -> Floats:
        """Predictions; ``missing`` names organizations without a reply, or maps them to rows."""
        return self._predicted(self._output(X, missing))

    def staged_predict(self, X: Any) -> Iterator[Floats]:
        """Predictions after each round."""
        for output in self._staged_outputs(X):
            yield self._predicted(output)

    def _predicted(self, output: Floats) -> Floats:
        prediction = self._loss.inverse_link(output)
        return prediction[:, 0] if self._single_output else prediction


class GALClassifier(ClassifierMixin, _GAL):  # type: ignore[misc]
    """Gradient Assisted Learning for classification; parameters are those of `GALRegressor`.

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> parts = {"radiology": range(10), "pathology": range(10, 20), "genetics": range(20, 30)}
    >>> model = GALClassifier(parts).fit(X, y)
    >>> bool(model.score(X, y) > 0.97)
    True
    """

    _check, _read = staticmethod(check_class_labels), staticmethod(class_labels)

    def decision_function(self, X: Any, missing: Any = None) -> Floats:
        """Outputs: the log-odds of the second of two classes (n,), or one per class (n, C)."""
        return self._decision(self._output(X, missing))

    def predict_proba(self, X: Any, missing: Any = None) -> Floats:
        """Class probabilities, shape (n, C)."""
        return self._probabilities(self._output(X, missing))

    def predict(self, X: Any, missing: Any = None) -> NDArray[Any]:
        """The most probable class; ``missing`` names organizations without a reply."""
        return self._predicted(self._output(X, missing))

    def staged_predict_proba(self, X: Any) -> Iterator[Floats]:
        """Class probabilities after each round."""
        for output in self._staged_outputs(X):
            yield self._probabilities(output)

    def staged_predict(self, X: Any) -> Iterator[NDArray[Any]]:
        """The most probable class after each round."""
        for output in self._staged_outputs(X):
            yield self._predicted(output)

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

    def _predicted(self, output: Floats) -> NDArray[Any]:
        chosen = self._decision(output)
        codes = (chosen > 0).astype(int) if chosen.ndim == 1 else chosen.argmax(axis=1)
        return np.asarray(self.classes_[codes])


_STORED = frozenset(
    {
        *("classes_", "n_features_in_", "feature_names_in_", "_single_output"),
        *("_loss", "_initial", "_seconds", "privacy_"),
    }
)


def _feature_names(estimator: _GAL) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]
