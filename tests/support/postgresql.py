"""A PostgreSQL server of the tests' own: on loopback, in a folder of its own, never as root.

Debian's package (``apt-get install postgresql``) puts its programs beneath /usr/lib/postgresql.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

from patience import patient

USER, PASSWORD, DATABASE = "gal", "Tell-n0body!", "hospital"
PLACES = Path("/usr/lib/postgresql")


def programs() -> Path | None:
    """The folder of the newest server that is installed; None where there is none."""
    found = (
        sorted(PLACES.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3])) if PLACES.exists() else []
    )
    return found[-1].parent if found else None


class PostgreSQL:
    """A server that tests start, stop, kill and start again."""

    def __init__(self, port: int) -> None:
        found = programs()
        assert found is not None, "there is no PostgreSQL: apt-get install postgresql"
        self._programs, self.port = found, port
        self.folder = Path(tempfile.mkdtemp(prefix="gal-postgresql-"))
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user is not None:  # the server refuses to run as root
            shutil.chown(self.folder, pwd.getpwnam(self._user).pw_uid)
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        how = ["-U", USER, f"--pwfile={secret}", "--auth=scram-sha-256", "-N", "-E", "UTF8", "--locale=C"]
        self._run("initdb", "-D", str(self.folder / "data"), *how)
        secret.unlink()

    @property
    def uri(self) -> str:
        """Where it is, without the password."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{DATABASE}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = ["-l", str(self.folder / "log"), "-t", str(int(patient(60)))]
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", *log, "-o", settings, "start")

    def stop(self, how: str = "immediate") -> None:
        """Stop it; ``immediate`` is as if it had been killed."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", how, "stop", check=False)

    def __enter__(self) -> Self:
        self.start()
        with self.connect("postgres") as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, database: str = DATABASE) -> Any:
        """A connection that writes, and commits each statement."""
        from adbc_driver_postgresql import dbapi

        address = f"postgresql://{USER}@127.0.0.1:{self.port}/{database}?password={PASSWORD}"
        return dbapi.connect(address, autocommit=True)

    def do(self, *statements: str) -> None:
        """Run statements, one after another."""
        with self.connect() as connection, connection.cursor() as cursor:
            for one in statements:
                cursor.execute(one)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(query)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found

    def put(self, name: str, table: Any, key: str = "id") -> None:
        """A new table with these rows (of Arrow), and an index of its key."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {name}")
            cursor.adbc_ingest(name, table, mode="create")
            cursor.execute(f"ALTER TABLE {name} ADD PRIMARY KEY ({key})")
            cursor.execute(f"ANALYZE {name}")

    def _run(self, program: str, *words: str, check: bool = True) -> None:
        command = [str(self._programs / program), *words]
        if self._user is not None:
            command = ["runuser", "-u", self._user, "--", *command]
        done = subprocess.run(
            command, cwd="/tmp", capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0 or not check, done.stdout + done.stderr
