"""How the labels of a task are protected: chosen from public facts, read by them, and told in plain words.

What is drawn and charged for it is in ``label_guard.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gal.engine.labels import Labels, named_classes, regression_labels
from gal.engine.options import Options
from gal.errors import BudgetSpentError, InvalidInputError, InvalidOptionError, PrivacyError
from gal.node.agreement.invitations import PromisedPrivacy
from gal.node.config.configuration import NodeConfiguration
from gal.privacy.accounting import gaussian_multiplier, spent
from gal.privacy.ledger import Budget, Ledger
from gal.privacy.mechanisms.contract import LabelMechanism
from gal.privacy.noise import NoiseSource, SystemNoise
from gal.privacy.registry import NONE, kind_named, mechanism_named, promised_names
from gal.privacy.statements import statement

LINEAR = frozenset({"linear", "ridge"})
"""Local models whose answers, and residuals with them, are straight lines of the columns."""
TABULAR = "tabular"
"""The default model."""
ASKED_FOR = "-o columns_epsilon=10 -o columns_delta=1e-6"
"""How fresh noise for columns is asked for."""
SAYABLE_DELTA = 1e-6
"""At this delta costs are told where there is Gaussian noise and nobody has chosen one."""


@dataclass(frozen=True)
class LabelPrivacy:
    """How the labels of a task are protected: public facts only, which are kept with the task."""

    mechanism: str = "none"
    epsilon: float | None = None
    delta: float | None = None
    classes: tuple[Any, ...] | None = None
    """All classes that can occur, in any order; None for numbers."""
    lower: float | None = None
    upper: float | None = None
    columns_epsilon: float | None = None
    columns_delta: float | None = None

    def __post_init__(self) -> None:
        names = (NONE, *promised_names())
        if self.mechanism not in names:
            paper = (
                "the paper's guarantee nothing and are not for nodes; " if "paper" in self.mechanism else ""
            )
            raise InvalidOptionError(
                f"no privacy mechanism of a task is called {self.mechanism!r:.80}; {paper}there are: "
                f"{', '.join(names)}"
            )
        classless = self.mechanism == NONE or not kind_named(self.mechanism).suits("classes")
        if self.classes is not None and classless:
            raise InvalidOptionError(
                f"classes mean nothing with the privacy mechanism {self.mechanism}: class labels have "
                "randomised-response"
            )
        self.made()  # whatever else is wrong is said now

    def made(self, source: NoiseSource | None = None) -> LabelMechanism | None:
        """The mechanism with this source of noise; None where there is none."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        made = mechanism_named(given.pop("mechanism"), source=source, **given)
        assert made is None or isinstance(made, LabelMechanism)
        return made

    @property
    def promised(self) -> Literal["none"] | PromisedPrivacy:
        made = self.made()
        if made is None:
            return "none"
        cost = made.cost
        return PromisedPrivacy(
            mechanism=self.mechanism,
            epsilon=cost.epsilon,
            delta=cost.delta,
            columns_epsilon=self.columns_epsilon,
            columns_delta=self.columns_delta,
        )

    @property
    def kind(self) -> str:
        """Classification where classes are given, else regression: not to be found out from the labels."""
        return "regression" if self.classes is None else "classification"

    def to_json(self) -> dict[str, Any]:
        """Plain values; what is not given is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> LabelPrivacy:
        known = {name: facts[name] for name in LabelPrivacy.__dataclass_fields__ if name in facts}
        classes = facts.get("classes")
        return LabelPrivacy(**{**known, "classes": None if classes is None else tuple(classes)})

    def read(self, y: NDArray[Any], kind: str, options: Options) -> Labels:
        """True labels (n,) in the way that is public: no class, no kind and no bound is looked up in them."""
        if kind not in {"auto", self.kind}:
            raise InvalidOptionError(
                f"kind {kind!r} does not go with privacy {self.mechanism!r} "
                + (
                    "and classes"
                    if self.classes is not None
                    else "without classes (name all that can occur: --classes)"
                )
            )
        made = self.made()
        return regression_labels(y, options) if made is None else made.read(self.as_classes(y), options)

    def as_classes(self, y: NDArray[Any]) -> NDArray[Any]:
        """Labels as the public classes of the same name: 1, 1.0 and "1" are one class."""
        if self.classes is None:
            return y
        return named_classes(y, self.classes)

    def stand_in(self, n_rows: int) -> NDArray[Any]:
        """Labels (n,) that could be, and tell nothing: for what must be known before noise is drawn."""
        could_be: Sequence[Any] = self.classes or (
            self.lower or 0.0,
            1.0 if self.upper is None else self.upper,
        )
        values = np.empty(n_rows, dtype=object if self.classes else np.float64)
        values[:] = [could_be[place % len(could_be)] for place in range(n_rows)]
        return values


NO_PRIVACY = LabelPrivacy()


def privacy_of(options: Mapping[str, Any]) -> LabelPrivacy:
    """How a task's labels are protected, from its record's options; tasks of before have no such word."""
    return LabelPrivacy.from_json(options.get("privacy", {}))


def protects_columns(privacy: LabelPrivacy) -> bool:
    """Whether every residual gets fresh noise for columns."""
    return privacy.columns_epsilon is not None


def columns_hint(configuration: NodeConfiguration, privacy: LabelPrivacy) -> str:
    """What to consider where residuals would give columns away; empty where they do not, or not at once."""
    if protects_columns(privacy):
        return ""
    if configuration.model.use == TABULAR and privacy.mechanism != "none":
        return (
            f"Noise on labels does not keep columns: behind your local model ({TABULAR}) residuals of a "
            "cross-validated task tell the other organizations from little to nearly all of them. Fresh "
            f"noise on every residual keeps them, and costs a part of what assistance gains: {ASKED_FOR}."
        )
    if configuration.model.use not in LINEAR:
        return ""
    return (
        f"Your local model is {configuration.model.use}: residuals give columns behind linear models to the "
        "other organizations, with noise on labels too. Fresh noise on every residual keeps them, and costs "
        f"linear models little: {ASKED_FOR} with a mechanism for labels."
    )


def label_budget(configuration: NodeConfiguration) -> Budget | None:
    return configuration.privacy.label_budget


def subject_of(configuration: NodeConfiguration) -> str:
    """What the ledger calls the labels of this node."""
    column = None if configuration.data is None else configuration.data.label
    if column is None:
        raise InvalidInputError(
            f"organization {configuration.name!r} has no labels: name their column in node.toml, data.label"
        )
    return f"labels: {column}"


def check_installed(privacy: LabelPrivacy) -> None:
    """Say now, not before the first round, that noise with a guarantee cannot be made here."""
    made = privacy.made()
    if made is not None:
        SystemNoise()
    if made is not None and made.cost.delta > 0:
        gaussian_multiplier(made.cost.epsilon, made.cost.delta, releases=1)


def check_allowed(configuration: NodeConfiguration, privacy: LabelPrivacy, task: str) -> None:
    """A budget for labels is no budget if a task may send them as they are."""
    budget = label_budget(configuration)
    if budget is not None and privacy.mechanism == "none":
        raise PrivacyError(
            f"the task {task!r} has no privacy mechanism, so it would tell every label, and node.toml allows "
            f"epsilon {budget.epsilon:g} for labels (privacy.label_epsilon). Nothing was sent: open a task "
            "with gal invite --privacy, or take the budget out of node.toml"
        )
    columns = configuration.privacy.column_budget
    if columns is not None and not protects_columns(privacy):
        raise PrivacyError(
            f"the task {task!r} has no noise for columns, so its residuals would tell what was answered "
            f"about every row, and node.toml allows epsilon {columns.epsilon:g} for that "
            f"(privacy.column_epsilon). Nothing was sent: open a task with gal invite {ASKED_FOR}, or take "
            f"the budget out of node.toml"
        )


def check_affordable(
    configuration: NodeConfiguration, ledger: Path, privacy: LabelPrivacy, task: str
) -> None:
    """Say now, not when everybody has joined, that the budget can never pay for a task."""
    budget, made = label_budget(configuration), privacy.made()
    if budget is None or made is None:
        return
    cost = spent([made.event], budget.delta)
    subject, before = subject_of(configuration), 0.0
    if ledger.exists():
        with Ledger(ledger) as kept:
            before = kept.spent(subject, budget.delta)
    # Pure epsilons add up exactly; with a delta they may come to less, and learning decides.
    too_much = cost > budget.epsilon or (budget.delta == 0 and before + cost > budget.epsilon * (1 + 1e-9))
    if too_much:
        asked = (
            f"{privacy.mechanism} needs a delta, and the budget has delta {budget.delta:g}: set "
            "privacy.label_delta in node.toml"
            if math.isinf(cost)
            else f"it costs epsilon {cost:.4g}, {before:.4g} of {budget.epsilon:g} are spent on these "
            "labels (privacy.label_epsilon)"
        )
        raise BudgetSpentError(
            f"the task {task!r} could never be learned: {asked}. No invitation was written; take a smaller "
            "epsilon, or a larger budget"
        )


def standing(ledger: Ledger, configuration: NodeConfiguration, privacy: LabelPrivacy) -> dict[str, Any]:
    """What the row that lost most has lost over all tasks, and what is left; None: without limit."""
    subject, budget, made = subject_of(configuration), label_budget(configuration), privacy.made()
    delta = 0.0 if budget is None else budget.delta
    if delta == 0 and made is not None:
        delta = made.cost.delta
    if delta == 0:
        noises = {one.event.mechanism for one in ledger.entries() if one.subject == subject}
        delta = SAYABLE_DELTA if "gaussian" in noises else 0.0
    so_far = ledger.spent(subject, delta)
    left = None if budget is None else max(budget.epsilon - so_far, 0.0)
    return {
        "subject": subject,
        "spent": None if math.isinf(so_far) else so_far,
        "at_delta": delta,
        "budget": None if budget is None else budget.epsilon,
        "left": left,
    }


def in_words(facts: Mapping[str, Any]) -> str:
    at_delta = f" at delta {facts['at_delta']:g}" if facts["at_delta"] else ""
    if facts["spent"] is None:
        return (
            "What was told of these labels so far, all tasks together, has no bound (gal privacy shows why)."
        )
    limit = (
        "there is no budget"
        if facts["budget"] is None
        else f"{facts['left']:.4g} of {facts['budget']:g} left"
    )
    return (
        "Spent on these labels so far, all tasks and organizations together: epsilon "
        f"{facts['spent']:.4g}{at_delta}; {limit}."
    )


def privacy_facts(ledger: Ledger, configuration: NodeConfiguration, privacy: LabelPrivacy) -> dict[str, Any]:
    """What people want to know of a version's privacy, as plain data."""
    made = privacy.made()
    said = statement(made)
    return {
        "mechanism": privacy.mechanism,
        "epsilon": None if made is None else made.cost.epsilon,
        "delta": None if made is None else made.cost.delta,
        "words": said.words,
    } | standing(ledger, configuration, privacy)
