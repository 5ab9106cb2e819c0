"""How the labels of a task are protected: chosen from public facts, read by them, and told in plain words.

What is drawn and charged for it is in ``label_guard.py``.
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
            raise InvalidOptionError(
                f"no privacy mechanism of a task is called {self.mechanism!r:.80}; there are: "
                f"{', '.join(names)}"
            )
        classless = self.mechanism == NONE or "classes" not in kind_named(self.mechanism).suits
        if self.classes is not None and classless:
            raise InvalidOptionError(
                f"classes mean nothing with the privacy mechanism {self.mechanism}: class labels have "
                "randomised-response"
            )
        self.made()  # whatever else is wrong is said now

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
        cost = made.cost
        return PromisedPrivacy(
            mechanism=self.mechanism,
            epsilon=cost.epsilon,
            delta=cost.delta,
            columns_epsilon=self.columns_epsilon,
            columns_delta=self.columns_delta,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; what is not given is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> LabelPrivacy:
        known = {name: facts[name] for name in LabelPrivacy.__dataclass_fields__ if name in facts}
        classes = facts.get("classes")
        return LabelPrivacy(**{**known, "classes": None if classes is None else tuple(classes)})

    def read(self, y: NDArray[Any], kind: str, options: Options) -> Labels:
        """True labels (n,); with privacy no class, no kind and no bound is looked up in them."""
        made = self.made()
        if made is None:
            return read_labels(y, kind, options)
        if kind not in {"auto", "regression" if self.classes is None else "classification"}:
            raise InvalidOptionError(
                f"kind {kind!r} does not go with privacy {self.mechanism!r} "
                + ("and classes" if self.classes else "without classes (name all that can occur: --classes)")
            )
        return made.read(y if self.classes is None else named_classes(y, self.classes), options)

    def stand_in(self, n_rows: int) -> NDArray[Any]:
        """Labels (n,) that could be, and tell nothing: for what must be known before noise is drawn."""
        upper = 1.0 if self.upper is None else self.upper
        could_be = np.array(
            self.classes or [self.lower or 0.0, upper], dtype=object if self.classes else None
        )
        return np.resize(could_be, n_rows)


NO_PRIVACY = LabelPrivacy()


def privacy_of(options: Mapping[str, Any]) -> LabelPrivacy:
    """How a task's labels are protected, from its record's options."""
    return LabelPrivacy.from_json(options.get("privacy", {}))


def subject_of(configuration: NodeConfiguration) -> str:
    """What the ledger calls the labels of this node."""
    column = None if configuration.data is None else configuration.data.label
    if column is None:
        raise InvalidInputError(
            f"organization {configuration.name!r} has no labels: name their column in node.toml, data.label"
        )
    return f"labels: {column}"


def check_allowed(configuration: NodeConfiguration, privacy: LabelPrivacy, task: str) -> None:
    """A budget for labels is no budget if a task may send them as they are."""
    budget = configuration.privacy.label_budget
    if budget is not None and privacy.mechanism == "none":
        raise PrivacyError(
            f"the task {task!r} has no privacy mechanism, so it would tell every label, and node.toml allows "
            f"epsilon {budget.epsilon:g} for labels (privacy.label_epsilon). Nothing was sent: open a task "
            "with gal invite --privacy, or take the budget out of node.toml"
        )
    columns = configuration.privacy.column_budget
    if columns is not None and privacy.columns_epsilon is None:
        raise PrivacyError(
            f"the task {task!r} has no noise for columns, so its residuals would tell what was answered "
            f"about every row, and node.toml allows epsilon {columns.epsilon:g} for that "
            f"(privacy.column_epsilon). Nothing was sent: open a task with gal invite {ASKED_FOR}, or take "
            f"the budget out of node.toml"
        )


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
    """What protects the labels of a task, what the row that lost most has lost over all tasks, and what is
    left, as plain data; None: without limit.
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
