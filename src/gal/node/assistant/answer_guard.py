"""The privacy charge of an organization's noisy replies, before they leave.

A repeated fit gets the stored reply at no further cost. Any other request is computed and charged again: a
second draw of noise reveals more.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gal.errors import BudgetSpentError, PrivacyError, RefusedError
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.invitations import TaskTerms
from gal.node.config.requests import IncomingRequest
from gal.node.store.files import read_whole
from gal.node.store.logs import Log
from gal.node.store.state import TaskRecord
from gal.node.worker.answer_noise import ROWS, Keys, answer_noise, check_noise_installed, keys_of, noise_facts

if TYPE_CHECKING:
    from gal.privacy.ledger import Ledger

SUBJECT = "answers"
"""The ledger's subject for this organization's replies about its rows."""


def check_bounded(configuration: NodeConfiguration, terms: TaskTerms) -> None:
    """A refusal where node.toml has a budget for replies, and those of a task would have no noise."""
    chosen = configuration.privacy
    if chosen.answer_budget is not None and chosen.answer_noise == "none" and terms.noise is None:
        raise RefusedError(
            "no-noise",
            f"{configuration.name} has a privacy budget for its replies (privacy.answer_budget_epsilon), and "
            f"those of {terms.name!r} would have no noise: open a task with noise on sums (gal invite "
            "--secure-aggregation sums -o sums_epsilon=...), or ask its operator to set privacy.answer_noise",
        )


class AnswerGuard:
    """Charges an organization's replies to others."""

    def __init__(
        self, configuration: NodeConfiguration, ledger: Callable[[], Ledger] | None, log: Log
    ) -> None:
        self.facts = noise_facts(configuration)
        """The noise on replies, for the worker; None: there is none, and nothing is charged."""
        self._configuration = configuration
        self._name, self._budget = configuration.name, configuration.privacy.answer_budget
        self._log, self._ledger = log, ledger
        if self.facts is None:
            return
        if ledger is None:
            raise PrivacyError(f"{self._name}: replies with noise need a ledger to charge them to")
        check_noise_installed()  # at the start, and not in a reply
        self._noise = answer_noise(self.facts)

    def noise_on(self, request: IncomingRequest) -> dict[str, Any] | None:
        """The noise on the reply to a request; none within this organization."""
        return None if request.own else self.facts

    def check_bounded(self, request: IncomingRequest, task: TaskRecord) -> None:
        """Refuse replies without noise to others where there is a budget for replies."""
        if not request.own and request.message.kind != "end":
            check_bounded(self._configuration, task.terms)

    def charge(
        self, peer: str, task: TaskRecord, rows: Keys, count: int = 1, *, aggregated: bool = False
    ) -> None:
        """Charge ``count`` replies about each of these rows to a label holder's task, before they leave.

        ``aggregated``: values of a sum that has the noise of the task's terms.
        """
        if len(rows) == 0 or (self.facts is None and not aggregated):
            return
        from gal.privacy.accounting import Event
        from gal.privacy.ledger import Charge

        noise = task.terms.noise
        if aggregated and noise is not None:
            event = Event("discrete-gaussian", noise.multiplier, count)
        else:
            event = self._noise.event(count)
        if self._ledger is None:
            raise PrivacyError(f"{self._name}: replies with noise need a ledger to charge them to")
        try:
            charge = Charge(task.id, SUBJECT, task.name, (peer,), event)
            self._ledger().charge(charge, rows, self._budget, again=True)
        except BudgetSpentError as error:
            self._log.warning("privacy budget spent", peer=peer, task=task.name, why=str(error))
            raise RefusedError(
                "privacy-budget-spent",
                f"{self._name} has spent its privacy budget for some of these rows: go on without it, or ask "
                "its operator",
            ) from error

    def charge_version(
        self,
        peer: str,
        task: TaskRecord,
        folder: Path,
        expected: str | None,
        count: int = 1,
        *,
        aggregated: bool = False,
    ) -> None:
        """Charge ``count`` replies about all rows of a version; ``expected``: its file `ROWS`'s digest."""
        file = None if expected is None else read_whole(folder / ROWS, expected)
        if file is None:
            raise RefusedError(
                "privacy-changed",
                f"{self._name} cannot charge its replies in this version of {task.name!r}: the version began "
                "before they had noise, or a file was lost. Learn a new version",
            )
        self.charge(peer, task, keys_of(file), count, aggregated=aggregated)
