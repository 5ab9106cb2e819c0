"""Python processes from one fork server that has everything imported: ``Forked`` stands where ``Popen`` did.

``python forked.py SOCKET`` is the fork server. It has imported what nodes, commands and the processes that
compute need (none of which makes threads or channels by being imported, and not torch), and forks a process
for each request that comes over the socket: importing costs a process two seconds, and tests start hundreds.
What runs is what ``python -c``, ``python -m`` and ``python FILE`` would run, with the same streams, folder,
environment, session and exit status. What it starts with Python itself is forked, too. Tests about starting
processes take ``subprocess`` itself.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import importlib.util
import io
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

WHERE = "GAL_NURSERY"
"""The variable that has the fork server's socket."""

_Popen = subprocess.Popen


class Forked(subprocess.Popen[Any]):
    """A Python process that the fork server has made; any other command is started as ever."""

    _connection: socket.socket | None = None

    def _execute_child(self, args: Any, *more: Any) -> None:
        """Overrides the step of Popen that makes the process; its arguments are those of CPython's."""
        if not _is_python(args):
            _Popen._execute_child(self, args, *more)  # type: ignore[attr-defined]
            return
        _, _, _, pass_fds, cwd, env, _, _, _, *streams = more
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, _, _, _, _, _, start_new_session, _ = streams
        environment = {key: os.fsdecode(value) for key, value in (os.environ if env is None else env).items()}
        environment[WHERE] = server = nursery()
        request = {
            "words": [os.fsdecode(word) for word in args[1:]],
            "environment": environment,
            "folder": os.fsdecode(cwd or os.getcwd()),
            "session": bool(start_new_session),
            "descriptors": [0, 1, 2, *pass_fds],
        }
        given = [end if end >= 0 else own for own, end in enumerate((p2cread, c2pwrite, errwrite))]
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(server)
        socket.send_fds(connection, [b"{"], [*given, *pass_fds])
        connection.sendall(json.dumps(request).encode()[1:] + b"\n")
        self._answers = connection.makefile("rb")
        self.pid = int(self._answers.readline())
        self._child_created = True
        self._connection = connection
        self._asking = threading.Lock()
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def _internal_poll(self, *args: Any, **kwargs: Any) -> int | None:
        if self._connection is None:
            return _Popen._internal_poll(self, *args, **kwargs)  # type: ignore[attr-defined,no-any-return]
        return self._look(0)

    def _wait(self, timeout: float | None) -> int:
        if self._connection is None:
            return _Popen._wait(self, timeout)  # type: ignore[attr-defined,no-any-return]
        end = None if timeout is None else time.monotonic() + timeout
        while (found := self._look(0.5 if end is None else max(0.0, end - time.monotonic()))) is None:
            if end is not None and time.monotonic() >= end:
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
        return found

    def _has_said(self, seconds: float) -> bool:
        assert self._connection is not None
        try:
            return bool(select.select([self._connection], [], [], seconds)[0])
        except (ValueError, OSError):  # closed: another thread has just seen the end
            return True

    def _look(self, seconds: float) -> int | None:
        """The exit status, if it has ended or does so within so many seconds."""
        assert self._connection is not None
        if self.returncode is None and self._has_said(seconds):
            with self._asking:
                if self.returncode is None:
                    self.returncode = int(self._answers.readline() or -signal.SIGKILL)
                    self._answers.close()
                    self._connection.close()
        return self.returncode


def _is_python(args: Any) -> bool:
    """Whether this is Python with a program, a module or a file, and nothing else said to Python."""
    if not isinstance(args, Sequence) or len(args) < 2 or str(args[0]) != sys.executable:
        return False
    return str(args[1]).endswith(".py") or (len(args) > 2 and args[1] in {"-c", "-m"})


def run(
    words: Sequence[str],
    *,
    capture_output: bool = False,
    check: bool = False,
    timeout: float | None = None,
    **how: Any,
) -> subprocess.CompletedProcess[Any]:
    """What ``subprocess.run`` does."""
    if capture_output:
        how |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Forked(words, **how) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(words, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


@contextlib.contextmanager
def forking(*modules: types.ModuleType) -> Iterator[None]:
    """Have processes that these modules start made by the fork server."""
    forked = types.SimpleNamespace(**vars(subprocess) | {"Popen": Forked, "run": run})
    before = {one: vars(one)["subprocess"] for one in modules}
    for one in modules:
        vars(one)["subprocess"] = forked
    try:
        yield
    finally:
        for one, original in before.items():
            vars(one)["subprocess"] = original


@cache
def nursery() -> str:
    """The socket of the fork server: the one that made this process, or one that ends with this process."""
    if WHERE in os.environ:
        return os.environ[WHERE]
    folder = Path(tempfile.mkdtemp(prefix="gal-"))  # a socket's path has to be short
    path = folder / "nursery"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    mother = _Popen([sys.executable, __file__, str(path)], stdin=subprocess.PIPE, env=environment)

    def end() -> None:
        assert mother.stdin is not None
        mother.stdin.close()
        mother.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    while not path.exists():
        assert mother.poll() is None, "the fork server did not start"
        time.sleep(0.01)
    return str(path)


# The fork server


class Nursery:
    """Forks processes until its standard input is closed; ``run`` returns in each
    of them, with what it is to do.
    """

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path + ".new")
        self._listener.listen(64)
        os.rename(path + ".new", path)  # from now on who connects is answered, at the latest after imports
        self._children: dict[int, tuple[int, socket.socket]] = {}
        """By what tells of the end of a process: its id, and who wants to know."""

    def run(self) -> list[str]:
        while True:
            for ready in select.select([self._listener, sys.stdin, *self._children], [], [])[0]:
                if ready is sys.stdin:
                    self._end()
                if isinstance(ready, int):
                    self._tell_ended(ready)
                    continue
                connection = self._listener.accept()[0]
                request, descriptors = _received(connection)
                if request is None:
                    _close(connection, descriptors)
                    continue
                pid = os.fork()
                if pid == 0:
                    return self._be_born(request, connection, descriptors)
                for one in descriptors:
                    os.close(one)
                self._children[os.pidfd_open(pid)] = pid, connection

    def _tell_ended(self, ended: int) -> None:
        pid, connection = self._children.pop(ended)
        os.close(ended)
        _, status = os.waitpid(pid, 0)
        with connection, contextlib.suppress(OSError):
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())

    def _end(self) -> None:
        for pid, _ in self._children.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os._exit(0)

    def _be_born(
        self, request: Mapping[str, Any], connection: socket.socket, descriptors: list[int]
    ) -> list[str]:
        self._listener.close()
        for ended, (_, other) in self._children.items():
            os.close(ended)
            other.close()
        if request["session"]:
            os.setsid()
        connection.sendall(f"{os.getpid()}\n".encode())
        connection.close()
        _take_streams(dict(zip(request["descriptors"], descriptors, strict=True)))
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        more = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [request["folder"], *(one for one in more if one and one not in sys.path)]
        words: list[str] = request["words"]
        return words


def _take_streams(given: Mapping[int, int]) -> None:
    """Give what was received the numbers that it has where it came from."""
    high = {wanted: fcntl.fcntl(one, fcntl.F_DUPFD, 256) for wanted, one in given.items()}
    for one in given.values():
        os.close(one)
    for wanted, one in high.items():
        os.dup2(one, wanted)
        os.close(one)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(line_buffering=True)


def _received(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """What is asked for, if who asks was not killed in the middle of it; and descriptors that came."""
    text, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 16)
    while not text.endswith(b"\n"):
        try:
            more = connection.recv(1 << 16)
        except OSError:
            more = b""
        if not more:
            return None, descriptors
        text += more
    return json.loads(text), descriptors


def _close(connection: socket.socket, descriptors: list[int]) -> None:
    connection.close()
    for one in descriptors:
        os.close(one)


def import_everything() -> None:
    """What nodes, commands and the processes that compute need, before the first of them is made."""
    from gal.extras import EXTRAS, is_installed

    if not all(map(is_installed, EXTRAS["node"])):  # then only scripts and commands are run
        importlib.import_module("gal.cli.app")
        return
    from gal.node.worker.worker_process import import_storage

    import_storage()  # without torch, which is not made to be forked
    for name in ("cli.app", "cli.learning", "cli.nodes", "node.admin.doctor"):
        importlib.import_module(f"gal.{name}")
    importlib.import_module("gal.node.runtime.control")
    importlib.import_module("gal.node.label_holder.label_holder")  # a node does when it is asked to learn
    for name in ("duckdb", "prometheus_client", "sklearn.datasets"):
        importlib.import_module(name)
    for name in ("command", "four_nodes", "confined"):
        importlib.import_module(f"gal_bench.demo.{name}")
    assert "torch" not in sys.modules
    assert threading.active_count() == 1, "threads do not live on in a fork"
    gc.freeze()  # none of it is garbage, and looking would copy its pages
    gc.set_threshold(20_000, 20, 20)  # as in the tests themselves


def run_words(words: Sequence[str]) -> None:
    """What Python does with these words."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if words[0].endswith(".py"):
        sys.argv = list(words)
        sys.path[0] = str(Path(words[0]).resolve().parent)
        main.__file__ = words[0]
        exec(compile(Path(words[0]).read_bytes(), words[0], "exec"), vars(main))
        return
    how, what, *arguments = words
    if how == "-c":
        sys.argv = ["-c", *arguments]
        code: Any = compile(what, "<string>", "exec")
    else:
        found = importlib.util.find_spec(what)
        assert found is not None
        sys.argv = [str(found.origin), *arguments]
        main.__spec__ = found
        code = found.loader.get_code(what)  # type: ignore[union-attr]
    exec(code, vars(main))


def end_as_python_does(words: Sequence[str]) -> None:
    """Run what was asked for, and end with the status that Python has then; nothing is taken apart."""
    status: Any = 0
    try:
        run_words(words)
    except SystemExit as end:
        status = end.code or 0
        if not isinstance(status, int):
            sys.stderr.write(f"{status}\n")
            status = 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    """Make processes; in each of them, run what it was made for."""
    from process_faults import install

    made = Nursery(sys.argv[1])
    sys.path.pop(0)  # the tests' folder, which is first because this file lies in it
    import_everything()
    words = made.run()
    subprocess.Popen = Forked  # type: ignore[misc]
    install("worker" if words[1:2] == ["gal.node.worker.worker_process"] else "node")
    end_as_python_does(words)


if __name__ == "__main__":
    main()
