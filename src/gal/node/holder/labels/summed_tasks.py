"""Tasks that learn from sums: what is kept of one, and what the engine is told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gal.engine.options import Options
from gal.errors import InvalidOptionError
from gal.node.agreement.invitations import Invited
from gal.secrecy import Sums
from gal.secrecy.summed_options import summed_options
from gal.secrecy.terms import SUM


@dataclass(frozen=True)
class _Member:
    """All that the engine's options ask of an organization."""

    moves: bool


def kept_secrecy(
    secrecy: str, drop_outs: int, organizations: Sequence[Invited], alignment: str
) -> dict[str, Any]:
    """What is kept of a task's secrecy with its options; nothing where there is none."""
    if secrecy == "none":
        if drop_outs:
            raise InvalidOptionError(
                f"drop_outs={drop_outs} is for secrecy = sums: without it nobody is lost"
            )
        return {}
    if secrecy != "sums":
        raise InvalidOptionError(f"secrecy must be none or sums, got {secrecy!r}")
    if alignment == "psi":
        raise InvalidOptionError(
            "with secrecy = sums everybody is asked about the same rows, which a private set intersection "
            "with each organization apart does not give: match rows by plain or hashed"
        )
    names = [one.name for one in organizations]
    Sums(drop_outs).check(len(names))
    return {"secrecy": {"drop_outs": drop_outs, "members": names}}


def summed_task(
    own: str, kept: Mapping[str, Any], options: Options, moving: Sequence[str], *, private: bool
) -> tuple[list[str], Options]:
    """The organizations as the engine knows them, and options that ask for no single answer."""
    members = {name: _Member(name in moving) for name in kept["members"]}
    sums = Sums(kept["drop_outs"])
    return [own, SUM], summed_options(sums, options, own, members, private=private)
