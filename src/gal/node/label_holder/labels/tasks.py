"""New tasks of a label holder, their terms, and stored rows of a version."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import ValidationError

from gal.alignment import RowIds
from gal.core.task import Task
from gal.errors import GALError, InvalidInputError, InvalidOptionError, TaskError
from gal.learner.labels import Labels
from gal.learner.options import Options
from gal.learner.task_making import make_task
from gal.node.config.configuration import NodeConfiguration
from gal.node.config.invitations import Invited, TaskTerms
from gal.node.config.policy import PolicyLimits
from gal.node.label_holder.holder_node import HOLDER
from gal.node.label_holder.labels.label_guard import Recalled, read_arrow, write_arrow
from gal.node.label_holder.labels.label_privacy import NO_PRIVACY, LabelPrivacy, check_allowed, privacy_of
from gal.node.source.data import labels_of, source_ids
from gal.node.store.state import TaskRecord
from gal.privacy.protection import CROSS_VALIDATED, Protected, private_options, protect
from gal.protocol import check_name
from gal.secure_aggregation import Sums
from gal.secure_aggregation.asking import summed_options
from gal.secure_aggregation.terms import SUM
from gal.transport import CardFolder, Identity

LABELS = "labels.arrow"


@dataclass(frozen=True)
class LabelledRows:
    """The label holder's labelled rows, in the order of its source."""

    ids: RowIds
    y: NDArray[Any]
    n_without: int
    """Rows without a label, which are left out."""


def in_order_of_ids(rows: LabelledRows) -> LabelledRows:
    """The same rows in the order of ids: the order of a source can reveal labels."""
    order = np.argsort(rows.ids.values, kind="stable")
    return LabelledRows(rows.ids.take(order), rows.y[order], rows.n_without)


def read_labelled(configuration: NodeConfiguration) -> LabelledRows:
    """Ids and labels of all labelled rows; no other column is read."""
    table = source_ids(configuration, label=True)
    if table.label is None:
        raise InvalidInputError(
            f"organization {configuration.name!r} has no labels: name their column in node.toml, data.label"
        )
    there = np.flatnonzero(~table.label.is_null(nan_is_null=True).to_numpy())
    if len(there) == 0:
        raise InvalidInputError(f"organization {configuration.name!r}: no row has a label")
    rows = LabelledRows(table.ids.take(there), labels_of(table, there), len(table) - len(there))
    is_database = configuration.data is not None and configuration.data.is_database
    return in_order_of_ids(rows) if is_database else rows  # a database has no order


def new_task(
    configuration: NodeConfiguration,
    identity: Identity,
    cards: CardFolder,
    name: str,
    organizations: Sequence[str],
    *,
    kind: str = "auto",
    seed: int = 0,
    purpose: str = "",
    alignment: str = "plain",
    privacy: LabelPrivacy = NO_PRIVACY,
    secure_aggregation: str = "none",
    drop_outs: int = 0,
    sums_epsilon: float | None = None,
    sums_delta: float = 1e-6,
    clip: float = 2.0,
    made: str = "",
    **options: Any,
) -> TaskRecord:
    """A task of this label holder's own, with the terms that go into its invitation.

    With privacy the terms follow from public facts and the number of rows, never from the labels.
    """
    check_name(name, "a task")
    if configuration.listen is None:
        raise TaskError(
            f"{configuration.name} does not listen, and no organization can dial it: add a section [listen] "
            "to node.toml"
        )
    others = invited(configuration.name, cards, organizations)
    hidden = {} if privacy.mechanism == "none" else {"privacy": privacy.to_json()}
    summed = kept_aggregation(secure_aggregation, drop_outs, others, alignment)
    kept = {"kind": kind, "seed": seed, "options": dict(options), **hidden, **summed}
    check_options(options)
    check_allowed(configuration, privacy, name)
    try:
        if private_options(privacy.made(), Options(**options)) != Options(**options):
            kept["options"] = options | CROSS_VALIDATED
        names = [*(one.name for one in others), configuration.name]
        rows = read_labelled(configuration)
        labels_of_task(kept, rows.y)  # raises for wrong labels
        task = learning_task(configuration, kept, public_labels(kept, rows), names)
    except (TypeError, ValueError) as error:
        if isinstance(error, GALError):
            raise
        named = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise InvalidOptionError(f"the options {named} cannot be used: {error}") from error
    roles = task.rows
    held_out = "in-sample" if len(roles.search) == len(roles.fit) else "held-out"
    given: dict[str, Any] = {"alignment": alignment, "secure_aggregation": secure_aggregation}
    given["fitted"] = "out-of-fold" if roles.folds is not None else held_out
    if sums_epsilon is not None:
        from gal.privacy.accounting import noise_multiplier

        multiplier = noise_multiplier(sums_epsilon, sums_delta, task.rounds * (1 + roles.n_cv_folds))
        given["noise"] = {"multiplier": multiplier, "clip": clip, "delta": sums_delta}
    try:
        terms = TaskTerms(
            task=uuid4().hex,
            name=name,
            label_holder=configuration.name,
            fingerprint=identity.fingerprint,
            purpose=purpose,
            organizations=others,
            outputs=task.loss.n_outputs,
            rounds=task.rounds,
            folds=roles.n_folds,
            cv_folds=roles.n_cv_folds,
            probes=0 if task.probes is None else task.probes.probes,
            privacy=privacy.promised,
            drop_outs=drop_outs,
            made=made,
            **given,
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidOptionError(
            f"{place} {first['input']!r:.80} cannot be in an invitation: {first['msg']}"
        ) from None
    return TaskRecord(terms.task, name, HOLDER, configuration.name, terms, kept, made=made)


def kept_aggregation(
    secure_aggregation: str, drop_outs: int, organizations: Sequence[Invited], alignment: str
) -> dict[str, Any]:
    """The options of secure aggregation to store with a task; none without it."""
    if secure_aggregation not in {"none", "sums"} or (secure_aggregation == "none" and drop_outs):
        raise InvalidOptionError(
            "secure_aggregation must be none or sums, and drop_outs need sums: got "
            f"{secure_aggregation!r}, {drop_outs}"
        )
    if secure_aggregation == "none":
        return {}
    if alignment == "psi":
        raise InvalidOptionError(
            "with secure aggregation all organizations get the same rows, which separate private set "
            "intersections cannot give: match rows by plain or hashed"
        )
    names = [one.name for one in organizations]
    Sums(drop_outs).check(len(names))
    return {"secure_aggregation": {"drop_outs": drop_outs, "members": names}}


def invited(own: str, cards: CardFolder, organizations: Sequence[str]) -> tuple[Invited, ...]:
    """The organizations to invite, by the names of their cards."""
    members = {one: cards.get(one) for one in organizations}
    unknown = sorted(one for one, card in members.items() if card is None)
    if unknown or not members:
        known = ", ".join(sorted(cards.all())) or "none"
        raise InvalidInputError(
            f"no card of {', '.join(unknown) or 'any organization'}; known are: {known}. Use gal cards add "
            "FILE"
        )
    if own in members:
        raise InvalidInputError(f"{own!r} is this organization itself: it takes part anyway")
    return tuple(Invited(name=one, fingerprint=card.fingerprint) for one, card in members.items() if card)


def check_options(options: Mapping[str, Any]) -> None:
    """Whether the learner knows these options, and nodes can use them."""
    known = [one.name for one in fields(Options)]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidOptionError(f"no option is called {', '.join(unknown)}; there are: {', '.join(known)}")
    if options.get("stacking", "auto") not in ("auto", True, False):
        raise InvalidOptionError(
            f'stacking must be "auto", true or false over nodes, got {options["stacking"]!r:.100}: a '
            "stacker of your own is for the estimators and gal.learn"
        )


def labels_of_task(kept: Mapping[str, Any], y: NDArray[Any]) -> Labels:
    """Labels and their loss under a task's options; with privacy, from public facts only."""
    return privacy_of(kept).read(y, kept["kind"], Options(**kept["options"]))


def public_labels(kept: Mapping[str, Any], rows: LabelledRows) -> Protected:
    """The labels of a task before noise is drawn: with privacy, stand-ins that reveal nothing."""
    privacy, made = privacy_of(kept), privacy_of(kept).made()
    labels = labels_of_task(kept, rows.y if made is None else privacy.stand_in(len(rows.ids)))
    noisy = None if made is None else made.drawing_from(Recalled(labels.y[:, 0]))
    return protect(noisy, labels, Options(**kept["options"]), seed=0)


def learning_task(
    configuration: NodeConfiguration,
    kept: Mapping[str, Any],
    protected: Protected,
    organizations: Sequence[str],
    moving: Sequence[str] = (),
) -> Task:
    """The learner's task on visible labels; with secure aggregation the others are one organization."""
    options = protected.options
    if "secure_aggregation" in kept:
        name, sums = configuration.name, kept["secure_aggregation"]
        members = {one: SimpleNamespace(stateful=one in moving) for one in sums["members"]}
        options = summed_options(Sums(sums["drop_outs"]), options, name, members, private=protected.private)
        organizations, moving = [name, SUM], [one for one in moving if one == name]
    if options.interactions:
        PolicyLimits(configuration.name, configuration.policy).check_consent("own probes")
    return make_task(
        protected.labels,
        organizations,
        options,
        label_holder=configuration.name,
        label_holder_loss=configuration.model.local_loss,
        stateful=moving,
        release=protected.release,
        private=protected.private,
        seed=kept["seed"],
    )


def check_terms(
    configuration: NodeConfiguration, record: TaskRecord, rows: LabelledRows, moving: Sequence[str] = ()
) -> None:
    """Whether the current rows can be learned under the agreed terms."""
    terms = record.terms
    names = sorted({record.label_holder, *moving, *(one.name for one in terms.organizations)})
    task = learning_task(configuration, record.options, public_labels(record.options, rows), names, moving)
    now_and_agreed = {
        "numbers per row": (task.loss.n_outputs, terms.outputs),
        "folds": (task.rows.n_folds, terms.folds),
        "cross-validation folds": (task.rows.n_cv_folds, terms.cv_folds),
        "interaction probes": (0 if task.probes is None else task.probes.probes, terms.probes),
    }
    for what, (now, agreed) in now_and_agreed.items():
        if now > agreed or (now < agreed and what == "numbers per row"):
            raise TaskError(
                f"the {len(rows.ids)} labeled rows need {now} {what}, the terms of {record.name!r} agree on "
                f"{agreed}: open a new task for these rows with gal invite"
            )


def write_version(
    folder: Path, rows: LabelledRows, organizations: Sequence[str], moving: Sequence[str]
) -> None:
    """Store the ids and labels of a version, since a source may change, its organizations, and those with
    stateful models (``moving``).
    """
    facts = {
        "kind": rows.ids.kind,
        "dtype": rows.y.dtype.str,
        "organizations": list(organizations),
        "moving": list(moving),
        "n_without": rows.n_without,
    }
    table = pa.table({"ids": pa.array(rows.ids.values), "y": pa.array(rows.y)})
    write_arrow(folder / LABELS, table.replace_schema_metadata({b"gal": json.dumps(facts).encode()}))


def read_version(folder: Path) -> tuple[LabelledRows, list[str], list[str]]:
    """The stored rows, organizations, and those with stateful models."""
    try:
        table = read_arrow(folder / LABELS)
    except (OSError, pa.ArrowException) as error:
        raise TaskError(f"the labels of this version are gone ({error}): gal learn --anew") from error
    facts = json.loads(table.schema.metadata[b"gal"])
    ids = table.column("ids").to_numpy().astype(np.int64 if facts["kind"] == "integer" else object)
    y = table.column("y").to_numpy().astype(np.dtype(facts["dtype"]))
    rows = LabelledRows(RowIds(facts["kind"], ids), y, facts["n_without"])
    return rows, facts["organizations"], facts["moving"]
