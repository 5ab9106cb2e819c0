"""The label privacy of a task: its public options, and its cost in words.

The noise is drawn and charged in ``label_guard.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gal.errors import InvalidInputError, InvalidOptionError, PrivacyError
from gal.learner.labels import Labels, named_classes, read_labels
from gal.learner.options import Options
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.invitations import PromisedPrivacy
from gal.privacy.ledger import Ledger
from gal.privacy.mechanisms.contract import LabelMechanism, statement
from gal.privacy.registry import NONE, kind_named, mechanism_named, promised_names

COLUMN_OPTIONS = "-o columns_epsilon=10 -o columns_delta=1e-6"
"""Options of ``gal invite`` for column privacy."""
SAYABLE_DELTA = 1e-6
"""The delta of reported costs where Gaussian noise has none from the configuration."""


@dataclass(frozen=True)
class LabelPrivacy:
    """The protection of the labels of a task: public facts only, stored with the task."""

    mechanism: str = "none"
    epsilon: float | None = None
    delta: float | None = None
    classes: tuple[Any, ...] | None = None
    """All possible classes, in any order; None for numbers."""
    lower: float | None = None
    upper: float | None = None
    columns_epsilon: float | None = None
    columns_delta: float | None = None

    def __post_init__(self) -> None:
        names = (NONE, *promised_names())
        if self.mechanism not in names:
            raise InvalidOptionError(
                f"no privacy mechanism of a task is called {self.mechanism!r:.80}; there are: "
                f"{', '.join(names)}"
            )
        classless = self.mechanism == NONE or "classes" not in kind_named(self.mechanism).suits
        if self.classes is not None and classless:
            raise InvalidOptionError(
                f"the option classes has no effect with the privacy mechanism {self.mechanism}; class "
                "labels need randomised-response"
            )
        self.made()  # raises for any other wrong option

    def made(self) -> LabelMechanism | None:
        """The mechanism; None where there is none."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        made = mechanism_named(given.pop("mechanism"), **given)
        assert made is None or isinstance(made, LabelMechanism)
        return made

    @property
    def promised(self) -> Literal["none"] | PromisedPrivacy:
        made = self.made()
        if made is None:
            return "none"
        columns = {"columns_epsilon": self.columns_epsilon, "columns_delta": self.columns_delta}
        cost = made.cost
        return PromisedPrivacy(mechanism=self.mechanism, epsilon=cost.epsilon, delta=cost.delta, **columns)

    def to_json(self) -> dict[str, Any]:
        """Plain values, without those that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> LabelPrivacy:
        known = {name: facts[name] for name in LabelPrivacy.__dataclass_fields__ if name in facts}
        classes = facts.get("classes")
        return LabelPrivacy(**{**known, "classes": None if classes is None else tuple(classes)})

    def read(self, y: NDArray[Any], kind: str, options: Options) -> Labels:
        """The true labels (n,); with privacy, classes, kind and bounds come from the options alone."""
        made = self.made()
        if made is None:
            return read_labels(y, kind, options)
        if kind not in {"auto", "regression" if self.classes is None else "classification"}:
            raise InvalidOptionError(
                f"kind {kind!r} does not go with privacy {self.mechanism!r} "
                + ("and classes" if self.classes else "without classes (name all possible ones: --classes)")
            )
        return made.read(y if self.classes is None else named_classes(y, self.classes), options)

    def stand_in(self, n_rows: int) -> NDArray[Any]:
        """Possible labels (n,) that do not depend on the true ones, for checks before noise is drawn."""
        upper = 1.0 if self.upper is None else self.upper
        could_be = np.array(
            self.classes or [self.lower or 0.0, upper], dtype=object if self.classes else None
        )
        return np.resize(could_be, n_rows)


NO_PRIVACY = LabelPrivacy()


def privacy_of(options: Mapping[str, Any]) -> LabelPrivacy:
    """The label privacy in the options of a task's record."""
    return LabelPrivacy.from_json(options.get("privacy", {}))


def subject_of(configuration: NodeConfiguration) -> str:
    """The ledger's subject for the labels of this node."""
    column = None if configuration.data is None else configuration.data.label
    if column is None:
        raise InvalidInputError(
            f"organization {configuration.name!r} has no labels: name their column in node.toml, data.label"
        )
    return f"labels: {column}"


def check_allowed(configuration: NodeConfiguration, privacy: LabelPrivacy, task: str) -> None:
    """Refuse a task without a mechanism where node.toml has a budget for it."""
    budget = configuration.privacy.label_budget
    if budget is not None and privacy.mechanism == "none":
        raise PrivacyError(
            f"the task {task!r} has no privacy mechanism and would reveal every label, and node.toml allows "
            f"epsilon {budget.epsilon:g} for labels (privacy.label_epsilon). Nothing was sent: open a task "
            "with gal invite --privacy, or remove the budget from node.toml"
        )
    columns = configuration.privacy.column_budget
    if columns is not None and privacy.columns_epsilon is None:
        raise PrivacyError(
            f"the task {task!r} has no column privacy: its residuals would reveal the fitted values of every "
            f"row, and node.toml allows epsilon {columns.epsilon:g} for them (privacy.column_epsilon). "
            f"Nothing was sent: open a task with gal invite {COLUMN_OPTIONS}, or remove the budget "
            "from node.toml"
        )


def in_words(facts: Mapping[str, Any]) -> str:
    """The privacy spent on labels, as one sentence."""
    at_delta = f" at delta {facts['at_delta']:g}" if facts["at_delta"] else ""
    if facts["spent"] is None:
        return "The privacy spent on these labels, all tasks together, has no bound (gal privacy shows why)."
    limit = (
        "there is no budget"
        if facts["budget"] is None
        else f"{facts['left']:.4g} of {facts['budget']:g} left"
    )
    return (
        f"Spent on these labels so far, all tasks and organizations together: epsilon {facts['spent']:.4g}"
        f"{at_delta}; {limit}."
    )


def privacy_facts(ledger: Ledger, configuration: NodeConfiguration, privacy: LabelPrivacy) -> dict[str, Any]:
    """The mechanism of a task, and the largest cost of a row over all tasks with the rest of its budget.

    Plain data; None: without limit.
    """
    made, subject, budget = privacy.made(), subject_of(configuration), configuration.privacy.label_budget
    delta = 0.0 if budget is None else budget.delta
    if delta == 0 and made is not None:
        delta = made.cost.delta
    if delta == 0 and any(
        one.event.mechanism == "gaussian" for one in ledger.entries() if one.subject == subject
    ):
        delta = SAYABLE_DELTA
    spent = ledger.spent(subject, delta)
    return {
        "mechanism": privacy.mechanism,
        "epsilon": None if made is None else made.cost.epsilon,
        "delta": None if made is None else made.cost.delta,
        "words": statement(made).words,
        "subject": subject,
        "spent": None if math.isinf(spent) else spent,
        "at_delta": delta,
        "budget": None if budget is None else budget.epsilon,
        "left": None if budget is None else max(budget.epsilon - spent, 0.0),
    }
