"""Protocol versions: the newest that both sides speak is used, and nothing is said that it does not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gal.errors import RefusedError
from gal.protocol.codec import Encoded, prepare

VERSIONS = (1, 2)
"""What this version of gal-learn speaks: the one of the release before, too."""

SINCE: Mapping[str, Mapping[str, int]] = {"predicted": {"changed": 2}}
"""By kind of message and field: the first version that has it. Who speaks an older one would refuse it."""


def choose(theirs: Sequence[int], peer: str, own: str = "this side") -> int:
    """The newest version that both speak, or a refusal that says who has to upgrade.

    >>> choose([1], "bank"), choose([1, 2, 3], "bank")
    (1, 2)
    """
    common = set(VERSIONS) & set(theirs)
    if common:
        return max(common)
    newest = max(theirs, default=0)
    who = peer if newest < min(VERSIONS) else own
    raise RefusedError(
        "unknown-version",
        f"{peer} speaks protocol {', '.join(map(str, theirs)) or 'none'}, {own} "
        f"{', '.join(map(str, VERSIONS))}: "
        f"upgrade gal-learn at {who} (pip install --upgrade gal-learn)",
    )


def in_version(encoded: Encoded, version: int) -> Encoded:
    """The message as it can be said in this version: without the fields that are newer."""
    message = encoded.message
    newer = {name for name, since in SINCE.get(message.kind, {}).items() if since > version}
    if not newer & set(message.fields):
        return encoded
    fields = {name: value for name, value in message.fields.items() if name not in newer}
    return prepare(replace(message, fields=fields))
