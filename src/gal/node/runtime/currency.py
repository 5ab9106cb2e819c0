"""Whether the folder of a node is the newest that there was: by a witness outside of it."""

from __future__ import annotations

from datetime import datetime
from sqlite3 import Connection

from gal.node.config.configuration import NodeConfiguration
from gal.node.store.audit import AuditLog
from gal.node.store.audit_head import NOTHING, Head
from gal.node.store.restores import Restore, kept_time
from gal.node.store.state import State
from gal.node.store.witness import Witness, Witnessed, has_entry, last_release


def what_witness_misses(state: State, witness: Witness) -> str:
    """Why the witness says that this folder is older than what was released; empty where it does not."""
    seen = witness.read()
    if seen is None:
        return ""
    with state.reading() as log:
        if has_entry(log, seen.release):
            return ""
        newest = newest_entry(log)
    return (
        f"the witness {witness.path} knows of entry {seen.release.seq} of the audit log, by which something "
        f"was released; here entry {newest.seq} is the newest, or another one has that number"
    )


def newest_entry(log: Connection) -> Head:
    """Number and hash of the newest entry of an audit log."""
    row = log.execute("select seq, hash from audit order by seq desc limit 1").fetchone()
    return NOTHING if row is None else Head(*row)


def see_whether_current(
    configuration: NodeConfiguration, state: State, audit: AuditLog, now: datetime
) -> None:
    """Have everything count as spent where the witness knows of a release that this folder does not have.

    That is a folder that was copied back by hand, or a machine that went back to a snapshot.
    """
    if configuration.audit.witness is None:
        return
    witness = Witness(configuration.audit.witness)
    why = what_witness_misses(state, witness)
    if not why:
        return
    with state.reading() as log:
        newest = newest_entry(log)
        when = log.execute("select max(time) from audit").fetchone()[0] or "an unknown time"
    state.restores.add(Restore(kept_time(now), when, newest.seq, newest.hash, why))
    follow(state, witness)
    audit.append("own", "restored", note=f"found to be older than the witness: {why}"[:500])


def follow(state: State, witness: Witness) -> None:
    """The witness goes on with this folder, where it is on record that it was brought back."""
    with state.reading() as log:
        witness.begin_anew(Witnessed(newest_entry(log), last_release(log)))
