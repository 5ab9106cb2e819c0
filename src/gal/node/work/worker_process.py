"""The process in which an organization computes: reads commands from a socket, writes results to it.

``python -m gal.node.work.worker_process HOME SOCKET``. Fits go one after another,
rows and predictions beside them.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gal.errors import GALError, InvalidInputError, LocalModelError
from gal.node.config.configuration import NodeConfiguration, read_configuration
from gal.node.journal.failures import describe_failure
from gal.node.work.allowance import ALLOWANCE
from gal.node.work.confinement import confine, readable_places, replaced_files
from gal.node.work.learned_rows import ExchangedRows
from gal.node.work.local_work import LocalWork
from gal.node.work.pipe import SMALL, pack, receive_piece, send_piece
from gal.protocol import decode

if TYPE_CHECKING:
    from gal.privacy.noise import NoiseSource

Data = bytes
Result = tuple[dict[str, Any], bytes]


class Commands:
    """What can be asked of the process, by name; each takes the command and its bytes."""

    def __init__(self, configuration: NodeConfiguration, source: NoiseSource | None = None) -> None:
        self.work = LocalWork(configuration, source)
        self.configuration, self.policy = configuration, configuration.policy
        self.exchanged = ExchangedRows(configuration.policy.min_rows)

    @property
    def waits(self) -> bool:
        """Whether a prediction waits for something outside of this process, such as a database."""
        return self.work.rows.stay_where_they_are

    def _limited(self, command: dict[str, Any]) -> AbstractContextManager[None]:
        """What this organization gives one request of others; its own may take what they need."""
        if command["own"]:
            return ALLOWANCE.granted(0, 0)
        return ALLOWANCE.granted(self.policy.fit_cpu_seconds, self.policy.fit_memory)

    def describe(self, command: dict[str, Any], data: Data) -> Result:  # noqa: ARG002
        """Whether the local model can be made, and moves."""
        return {"moving": self.work.moves}, b""

    def rows(self, command: dict[str, Any], data: Data) -> Result:  # noqa: ARG002
        """What features there are, and whether they can be read."""
        return self.work.rows.facts(), b""

    def begin(self, command: dict[str, Any], data: Data) -> Result:
        how = {"own": command["own"], "keys": command["keys"]}
        with ALLOWANCE.granted(0, 0):  # the source is as large as it is
            aligned = self.work.begin(data, Path(command["folder"]), command["peer"], **how)
        facts = {"n_rows": aligned.n_rows, "kinds": aligned.kinds, "keys": aligned.keys}
        return facts, aligned.answer

    def intersect(self, command: dict[str, Any], data: Data) -> Result:
        with ALLOWANCE.granted(0, 0):
            return {}, self.work.rows.intersect(data, command["peer"])

    def fit(self, command: dict[str, Any], data: Data) -> Result:
        previous = command["previous"]
        self.work.version(Path(command["folder"]))  # reading and importing is no part of the fit
        self.work.noise(command["noise"])
        with self._limited(command):
            left = self.work.fit(
                data,
                Path(command["folder"]),
                command["answer"],
                command["model"],
                None if previous is None else (previous[0], previous[1]),
                command["noise"],
                command.get("digest"),
                own=command["own"],
            )
        return left._asdict(), b""

    def predict(self, command: dict[str, Any], data: Data) -> Result:
        models = [(file, expected) for file, expected in command["models"]]
        names = ("peer", "rows", "n_outputs", "organization", "kinds", "noise")
        how = {name: command[name] for name in names}
        message, own_rows, spoken = decode(data), None, None
        if message.fields["method"] == "hashed" and not command["own"]:
            spoken = partial(self.exchanged.spoken_of, Path(command["folder"]))
        if command["rows"] is None:
            with ALLOWANCE.granted(0, 0):  # reading the source is no part of it
                own_rows = self.work.rows.known_rows(message, command["peer"], command["kinds"], spoken)
        how |= {"own_rows": own_rows}
        with self._limited(command):
            return pack(self.work.predict(message, Path(command["folder"]), models, **how))

    def revisit(self, command: dict[str, Any], data: Data) -> Result:
        models = [(file, expected) for file, expected in command["models"]]
        folder = Path(command["folder"])
        self.work.version(folder)
        with self._limited(command):
            return {}, self.work.revisit(data, folder, models, command["noise"])

    def forget(self, command: dict[str, Any], data: Data) -> Result:  # noqa: ARG002
        self.work.forget(Path(command["folder"]))
        return {}, b""

    def erase(self, command: dict[str, Any], data: Data) -> Result:  # noqa: ARG002
        """Forget rows; why not, where it is no fault. Then this process has to end."""
        from gal.node.store.state import State
        from gal.node.work.erasing import erase_rows

        drop = command["drop_versions"]
        with ALLOWANCE.granted(0, 0), closing(State(self.configuration.home)) as state:
            try:
                done = erase_rows(self.configuration, state, command["ids"], drop_versions=drop)
            except InvalidInputError as error:
                return {"refused": str(error)}, b""
            return done.facts(), b""


ONE_AT_A_TIME = frozenset({"fit", "begin", "revisit"})
READ_DATA = frozenset({"rows", "begin", "predict", "intersect", "erase"})
OUTDATED = 75
"""The exit status of a process whose data were replaced where it cannot reach the new ones: try again."""


class Server:
    """Runs commands in threads and answers in the order in which they end."""

    def __init__(
        self,
        connection: Connection,
        commands: Commands,
        name: str,
        outdated: Callable[[], bool] = lambda: False,
    ) -> None:
        """``outdated`` says that this process can no longer reach its data, and a new one can."""
        self._connection = connection
        self._commands = commands
        self._name, self._outdated = name, outdated
        self._sending = threading.Lock()

    def run(self) -> None:
        """Until the other end is closed: then this process has nobody to work for."""
        with ThreadPoolExecutor(1) as fits, ThreadPoolExecutor(4) as others:
            while True:
                try:
                    command, data = receive_piece(self._connection)
                except (EOFError, OSError, ValueError):
                    os._exit(0)  # also out of the middle of a fit
                method: Callable[..., Result] = getattr(self._commands, command["do"])
                at_once = command["do"] == "predict" and len(data) < SMALL and not self._commands.waits
                if at_once:  # sooner done than handed over
                    self._answer(method, command, data)
                    continue
                pool = fits if command["do"] in ONE_AT_A_TIME else others
                pool.submit(self._answer, method, command, data)

    def _answer(self, method: Callable[..., Result], command: dict[str, Any], data: Data) -> None:
        try:
            if command["do"] in READ_DATA and self._outdated():
                os._exit(OUTDATED)  # the node starts another process, and asks that one again
            result, content = method(command, data)
        except BaseException as error:
            if is_puzzling(error):
                traceback.print_exc(file=sys.stderr)
            result, content = {"failure": describe_failure(error, self._name)._asdict()}, b""
        with self._sending:
            try:
                send_piece(self._connection, {"id": command["id"]} | result, content)
            except OSError:  # half of it may be sent: by our end the node hears of it, and asks again
                os._exit(1)


def is_puzzling(error: BaseException) -> bool:
    """Whether the way to an error tells something: not where its sentence says all, as a refusal's does."""
    return not isinstance(error, GALError) or isinstance(error, LocalModelError)


def import_storage() -> None:
    """Import what stores models now, so that no round waits for it; without torch, if that is not here yet.

    skops imports all of scikit-learn, and that torch where it is installed: seconds and 200 MB, for nothing.
    """
    without: dict[str, Any] = {} if "torch" in sys.modules else {"torch": None}
    sys.modules.update(without)
    try:
        import skops.io  # noqa: F401
    finally:
        for name in without:
            del sys.modules[name]


def main(home: str, descriptor: str) -> None:
    """Serve commands for the node in this home, on this inherited socket."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent ends us in order
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    import_storage()
    configuration = read_configuration(Path(home))
    if not_confined := confine(configuration):
        sys.stderr.write(f"{configuration.name}: the local model is not shut in: {not_confined}\n")
    gc.freeze()  # all that was imported stays: looking through it again and again takes from every answer
    outdated = replaced_files([] if not_confined else readable_places(configuration))
    Server(Connection(int(descriptor)), Commands(configuration), configuration.name, outdated).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
