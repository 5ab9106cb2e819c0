"""Whether a version that was learned predicts from now on: not if it is worse than the
one that does, nor with too few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gal.errors import InvalidOptionError
from gal.node.holder.version_facts import validated_loss
from gal.node.store.stored_versions import LearnedVersion

REMOVED = "left: removed"
"""How the status of a member begins whom the label holder took out herself: it is not missed."""


@dataclass(frozen=True)
class Acceptance:
    """What a label holder asks of a version before it predicts."""

    activate: bool = False
    """Even where it is validated worse than the active one."""
    require_all: bool = False
    """All organizations that were invited have to be there in the last round."""
    at_least: int = 0
    """So many have to, the label holder's own included."""

    def check(self, n_organizations: int) -> None:
        """InvalidOptionError where that can never be."""
        if self.at_least > n_organizations:
            raise InvalidOptionError(
                f"--quorum {self.at_least} can never be reached: the task has {n_organizations} "
                "organizations, your own "
                "included"
            )

    def needed(self, n_organizations: int) -> int:
        """How many organizations have to be there at the end."""
        return max(n_organizations if self.require_all else 0, self.at_least)


@dataclass(frozen=True)
class Ending:
    """Who was there when a learning ended."""

    invited: tuple[str, ...]
    """The label holder's own organization included; without those whom she removed."""
    missing: Mapping[str, str]
    """Of these: who was not there in the last round, and why."""

    @property
    def n_there(self) -> int:
        """How many were there."""
        return len(self.invited) - len(self.missing)


def ending_of(own: str, members: Mapping[str, str], left_out: Mapping[str, str]) -> Ending:
    """By who is a member of the task, and who was left out of the last round."""
    invited = {own: "invited"} | {
        name: status for name, status in members.items() if not status.startswith(REMOVED)
    }
    missing = {
        name: left_out.get(name, f"has {status}")
        for name, status in invited.items()
        if name in left_out or status != "invited"
    }
    return Ending(tuple(invited), missing)


def decide(
    acceptance: Acceptance,
    ending: Ending,
    new: LearnedVersion,
    number: int,
    active: int,
    old: LearnedVersion | None,
) -> dict[str, Any]:
    """Which version predicts from now on, and why, in plain data: the better one, unless told otherwise."""
    n_invited, why = len(ending.invited), ""
    too_few = ending.n_there < acceptance.needed(n_invited)
    if too_few:
        why = f"only {ending.n_there} of {n_invited} organizations were there at the end"
    elif not acceptance.activate and old is not None and old.outcome is not None and new.outcome is not None:
        before, now = validated_loss(old.outcome), validated_loss(new.outcome)
        comparable = old.outcome.loss == new.outcome.loss and before is not None and now is not None
        if comparable and now > before:  # type: ignore[operator]
            why = f"its validated loss is {now:.6g}, that of version {active} is {before:.6g}"
    return {
        "active": active if why else number,
        "why_not_active": why,
        "invited": list(ending.invited),
        "not_there": dict(ending.missing),
        "too_few": too_few,
    }
