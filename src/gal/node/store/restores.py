"""Whether a state folder was brought back from a backup, and whether it is known to be current.

What was released since a backup is not in it. Unless somebody shows that nothing was, limits count as used up
and the privacy account as spent: else a restore would be a way to release everything once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gal.node.store.database import Database


@dataclass(frozen=True)
class Restore:
    """A folder was brought back."""

    time: str
    """When, UTC."""
    backup: str
    """When the backup was made."""
    seq: int
    head: str
    """Number and hash of the newest entry of the audit log in the backup."""
    why: str
    """Why it is not known to be current; how it was shown, where it is."""
    proven: bool = False

    @property
    def day(self) -> str:
        """The day (UTC) on which all limits by the day are used up."""
        return self.time[:10]

    def refusal(self, kind: str, today: str, made: str) -> str:
        """Why a request of this kind about a task of then is refused; empty where it is not.

        Limits by the day are used up on the day of the restore; tasks of before it for good.
        """
        by_day = kind in {"predict", "blind"}
        if not (today <= self.day if by_day else made <= self.time):
            return ""
        return (
            f"was brought back from a backup of {self.backup[:10]}, and does not know what it has answered "
            "since: its limits count as used up. "
            + ("Try again tomorrow" if by_day else "Invite it to a new task, or ask its operator")
        )

    def in_words(self) -> str:
        """For the operator: what is the matter, and what to do."""
        return (
            f"this node was brought back on {self.time[:16]} from a state of {self.backup[:16]}, and it is "
            f"not shown that nothing was released since ({self.why}): its privacy account counts as spent. "
            "What to do: open new tasks with your partners"
        )


class Restores:
    """The restores of a state folder; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, restore: Restore) -> None:
        """Remember that a folder was brought back; what was once exchanged, and
        may have been used since, is worth nothing.
        """
        values = (restore.time, restore.backup, restore.seq, restore.head, restore.why, str(restore.proven))
        with self._database.transaction() as db:
            db.execute(
                "INSERT INTO restores (time, backup, seq, head, why, proven) VALUES (?,?,?,?,?,?)", values
            )
            if not restore.proven:
                db.execute("DELETE FROM predictions WHERE peer LIKE 'exchanged %'")

    def unproven(self) -> Restore | None:
        """The newest restore that was not shown to be current; None: there is none."""
        query = "SELECT time, backup, seq, head, why FROM restores WHERE proven = 'False' ORDER BY id DESC"
        with self._database.reading() as db:
            row = db.execute(query).fetchone()
        return None if row is None else Restore(*row)

    def in_words(self) -> str:
        """Why the privacy account counts as spent; empty where it does not."""
        found = self.unproven()
        return "" if found is None else found.in_words()


def kept_time(time: datetime) -> str:
    """A time as it is kept here."""
    return time.isoformat(timespec="seconds")
