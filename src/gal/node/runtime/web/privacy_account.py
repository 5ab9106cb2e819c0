"""The privacy account of a node: budgets spent on labels, and on its rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gal.node.assistant.answer_guard import SUBJECT as ANSWERS
from gal.node.config.configuration import LEDGER, read_configuration
from gal.node.label_holder.stacker_files import read_learned
from gal.node.store.state import State, TaskRecord
from gal.node.worker.answer_noise import answer_noise, noise_facts

if TYPE_CHECKING:
    from gal.privacy.ledger import Budget

LABELS = "labels: "
"""The prefix of the ledger's subjects for labels; the column follows."""
DEFAULT_DELTA = 1e-6
"""The delta for costs of Gaussian noise where none is configured."""


def privacy_account(home: Path, task: str | None = None) -> dict[str, Any]:
    """Charged, spent and remaining budgets of labels, of columns through residuals, and of replies.

    ``task`` selects the charges; spent and remaining budgets are those of all tasks. An epsilon of None is
    unbounded.
    """
    from gal.privacy.ledger import Ledger
    from gal.privacy.mechanisms.columns import SUBJECT as COLUMNS

    configuration = read_configuration(home)
    there = (home / LEDGER).exists()  # else an empty one without a file
    with closing(State(home)) as state, Ledger(home / LEDGER if there else ":memory:") as ledger:
        state.check_ledger(home / LEDGER)
        entries = ledger.entries()
        if task is not None and task not in {entry.task for entry in entries}:
            state.find_task(task)  # its error lists all tasks
        tasks = [one for one in state.tasks() if task in {None, one.name}]
        own = [one for one in tasks if one.role == "label holder"]
        joined = [one for one in tasks if one.role == "organization"]
        promises = [one.terms.privacy for one in state.tasks("label holder")]
        promised = max((one.delta for one in promises if not isinstance(one, str)), default=0.0)
        plain = [
            {"task": one.name, "label_holder": one.label_holder}
            for one in joined  # with a version without noise
            if any(
                not version.keys and state.answers(one.id, number)
                for number, version in state.versions(one.id).items()
            )
        ]

        def account(subject: str, budget: Budget | None, chosen: float = 0.0) -> dict[str, Any]:
            """Spent and remaining, of all peers together and of each."""
            all_of = [one for one in entries if one.subject == subject]
            shown = [one for one in all_of if task in {None, one.task}]
            needs = any(one.event.mechanism == "gaussian" for one in all_of)  # without a cost at delta 0
            given = 0.0 if budget is None else budget.delta
            delta = given or (chosen or DEFAULT_DELTA if needs else 0.0)

            def spent(*, task: str | None = None, peer: str | None = None) -> float | None:
                found = ledger.spent(subject, delta, task=task, peer=peer)
                return None if math.isinf(found) else found

            total = spent()
            left = None
            if budget is not None:
                short = total is None or (needs and given == 0)
                left = 0.0 if short else max(0.0, budget.epsilon - (total or 0.0))
            return {
                "delta": delta,
                "budget": None if budget is None else asdict(budget),
                "unprotected": any(one.event.mechanism == "none" for one in all_of),
                "spent": total,
                "left": left,
                "tasks": [
                    {
                        "task": name,
                        "mechanisms": sorted({one.event.mechanism for one in shown if one.task == name}),
                        "epsilon": spent(task=name),
                        "peers": sorted({peer for one in shown if one.task == name for peer in one.peers}),
                    }
                    for name in dict.fromkeys(one.task for one in shown)
                ],
                "peers": {
                    one: spent(peer=one) for one in sorted({peer for one in shown for peer in one.peers})
                },
            }

        data, privacy, noise = configuration.data, configuration.privacy, noise_facts(configuration)
        charged = [one.subject for one in entries if task in {None, one.task}]
        labels = [one for one in charged if one.startswith(LABELS)]
        if data is not None and data.label is not None and (own or privacy.label_budget is not None):
            labels.append(f"{LABELS}{data.label}")
        return {
            "organization": configuration.name,
            "labels": [
                {"column": one.removeprefix(LABELS)} | account(one, privacy.label_budget, promised)
                for one in dict.fromkeys(labels)
            ],
            "nothing_sent": [one.name for one in own if not state.statuses(one.id, one.role)],
            "probes": [*_sent_probes(state, own), *_answered_probes(state, joined)],
            "columns": account(COLUMNS, privacy.column_budget),
            "answers": account(ANSWERS, privacy.answer_budget, float((noise or {"delta": 0.0})["delta"]))
            | {
                "words": None if noise is None else answer_noise(noise).describe(),
                "joined": [one.name for one in joined],
                "plain": plain,
            },
        }


def _sent_probes(state: State, own: Sequence[TaskRecord]) -> Iterator[dict[str, Any]]:
    """By version of own tasks with interaction probes: whose sign bits went to whom, in the probes that the
    model keeps.
    """
    for task in own:
        for number, version in state.learned_versions(task.id).items() if task.terms.probes else ():
            if version.outcome is None:
                continue
            kept = read_learned(state, task.id, number, version.outcome).probes
            vectors = [] if kept is None else kept.vectors
            pairs = Counter((sign.organization, one.organization) for one in vectors for sign in one.signs)
            signs = [{"of": of, "to": to, "probes": count} for (of, to), count in sorted(pairs.items())]
            yield {"task": task.name, "version": number, "most": task.terms.probes, "kept": signs}


def _answered_probes(state: State, joined: Sequence[TaskRecord]) -> Iterator[dict[str, Any]]:
    """By version of joined tasks: own replies whose signs the label holder may have sent on."""
    for task in joined:
        for number, version in state.versions(task.id).items() if task.terms.probes else ():
            replies = state.answers(task.id, number, "part = -1 AND round > ?", (version.rounds,))
            about = {"label_holder": task.label_holder, "replies": len(replies)}
            yield {"task": task.name, "version": number} | about
