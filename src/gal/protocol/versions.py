"""Protocol versions: the newest that both sides speak is used."""

from __future__ import annotations

from collections.abc import Sequence

from gal.errors import RefusedError

VERSIONS = (2,)
"""What this version of gal-learn speaks."""


def choose(theirs: Sequence[int], peer: str, own: str = "this side") -> int:
    """The newest version that both speak, or a refusal that says who has to upgrade.

    >>> choose([1, 2, 3], "bank")
    2
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
