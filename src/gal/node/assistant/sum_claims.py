"""What an organization holds a label holder to in sums of rows to predict, on record before they leave."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gal.errors import RefusedError
from gal.node.store.state import TaskRecord
from gal.protocol import Message
from gal.secrecy.masks import sha256_of
from gal.secrecy.messages import Circle, plain_bytes
from gal.secrecy.record import Claim, Claims

CHOSEN = "rows of a prediction in its sum"
"""Under what the record has which rows of a request are added up, by digest of the request."""
NAMED = "rows are named by"
"""Under what the record has how a label holder names rows where some members may drop out."""

RATES = "rates of a prediction"
"""Under what the record has with which rates a version's rounds are added up."""


def settle_rates(name: str, total: Message, record: Claims) -> None:
    """An error where the rounds of a version have been added up with other rates before.

    They are fixed when a version has learned. With others the label holder would get the sum of each round
    by itself, and with many that differ little the same answers, rounded again and again.
    """
    fields = total.fields
    version = f"{total.task} {total.version} {fields['track']}"
    rates = sha256_of(plain_bytes([fields["rounds"], fields["rates"]]))
    if record.settle([Claim(RATES, version, rates)]):
        raise RefusedError(
            "content",
            f"{name} has added up the rounds of version {total.version} with other rates: predict with those "
            "of this version, or learn a new one",
        )


def chosen_rows(name: str, request: str, chosen: NDArray[np.bool_], record: Claims) -> Claim:
    """That these rows of a request (its digest) are added up: the same ones in all its sums.

    A request is charged once. By other and other rows of it she could find, at no cost, the one whose answer
    this organization cannot write, and so how large it is.
    """
    claim = Claim(CHOSEN, request, sha256_of(np.packbits(chosen).tobytes()))
    if record.value(claim.scope, claim.key) not in (None, claim.value):
        raise RefusedError(
            "other-rows",
            f"{name} has added up other rows of this request: ask for a prediction of these rows alone",
        )
    return claim


def check_naming(name: str, task: TaskRecord, circle: Circle, record: Claims) -> None:
    """An error where rows have had other names before: a row is opened with the same members for ever, and
    under another name, in another task, it would be another row.
    """
    if not circle.drop_outs:  # every sum is of all members
        return
    [*differing] = record.settle([Claim(f"sums for {task.label_holder}", NAMED, task.terms.alignment)])
    if differing:
        raise RefusedError(
            "circle",
            f"{task.label_holder} names rows to {name} by {differing[0].value} ids where members may drop "
            f"out, and not by {task.terms.alignment} ones as in {task.name!r}: invite with the same --align",
        )
