"""What was cut off an audit log, as a file: one entry a line, in JSON, to be verified with the log later."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path

from gal.errors import AuditError
from gal.node.store.audit import AuditEntry
from gal.node.store.files import whole_file

NAMES = tuple(field.name for field in fields(AuditEntry))


def write_audit_archive(entries: Iterable[AuditEntry], path: Path) -> None:
    """Write entries to a new file; it is on the disk when this returns, and nothing is overwritten."""
    if path.exists():
        raise AuditError(f"there is a file {path} already: choose another name, archives are not overwritten")
    with whole_file(path, "the archive of the audit log", durably=True) as file:
        for entry in entries:
            file.write(json.dumps(asdict(entry), ensure_ascii=True).encode("ascii") + b"\n")


def read_audit_archives(paths: Iterable[Path]) -> Iterator[AuditEntry]:
    """The entries of archives, in the order in which the archives are given."""
    for path in paths:
        try:
            with path.open(encoding="ascii") as file:
                for line in file:
                    facts = json.loads(line)
                    yield AuditEntry(*(facts[name] for name in NAMES))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AuditError(f"{path} is no archive of an audit log, or is damaged: {error}.") from error
