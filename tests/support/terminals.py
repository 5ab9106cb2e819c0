"""Plays a page whose commands belong to several terminals: runs them in order, and notes what they print.

A page is made of these pieces, each a comment before a block (or alone):

- ``<!-- file: NAME -->``: the block is saved as NAME.
- ``<!-- edit: NAME, "START" -->``: the line of NAME that begins with START becomes the block.
- ``<!-- terminal 1 -->``: the commands of the block ("$ ...") run, one after another.
- ``<!-- terminal 1, goes on -->``: the block's one command goes on; the next block of that terminal waits
  for its end.
- ``<!-- terminal 1, only "PATTERN" -->``: the page has only the printed lines with this pattern.
- ``<!-- terminal 2: press Ctrl-C -->`` (or Ctrl-\\) in that terminal, also ``after "TEXT" in terminal 1``.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from patience import patient

PIECE = re.compile(
    r"<!-- (?:file: (?P<file>\S+)|edit: (?P<edit>\S+), \"(?P<start>[^\"]+)\"|terminal "
    r"(?P<terminal>\d)(?P<stays>, goes on)?(?:, only \"(?P<only>[^\"]+)\")?) -->\n"
    r"```\w*\n(?P<text>.*?)```\n"
    r"|<!-- terminal (?P<pressed>\d): press (?P<key>Ctrl-.)(?: after \"(?P<after>[^\"]+)\" in terminal "
    r"(?P<where>\d))? -->\n",
    re.DOTALL,
)
KEYS = {"Ctrl-C": signal.SIGINT, "Ctrl-\\": signal.SIGQUIT}
PORT = "7443"
HERE = "/home/you/tutorial"
"""What the page calls the folder in which it is played."""
SECONDS = patient(240.0)


class Terminal:
    """One terminal: a command at a time, and what it has printed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.printed = ""

    def start(self, command: str) -> None:
        """Start a command; what the one before printed is forgotten."""
        self.printed = ""
        plain = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1"}
        plain |= {"no_proxy": "127.0.0.1", "no_grpc_proxy": "127.0.0.1"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._process = subprocess.Popen(
            ["bash", "-c", f"ulimit -c 0; {command}"],
            cwd=self._folder,
            env=os.environ | plain | {"PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.printed += line
        process.stdout.close()

    def wait(self) -> int:
        """Wait for the command's end; its exit status."""
        assert self._process is not None
        assert self._reader is not None
        code = self._process.wait(SECONDS)
        self._reader.join(SECONDS)
        return code

    def press(self, number: signal.Signals) -> None:
        """A key that sends a signal to all processes of the terminal."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def wait_for(self, text: str) -> None:
        """Wait until this was printed."""
        until = time.monotonic() + SECONDS
        while text not in self.printed:
            assert time.monotonic() < until, f"{text!r} was not printed:\n{self.printed}"
            time.sleep(0.02)


def play(page: str, folder: Path, port: int) -> Iterator[tuple[tuple[int, int], str]]:
    """Play a page; for every terminal block: where its text stands, and the text that it ought to be."""
    terminals: dict[str, Terminal] = {}
    running: dict[str, tuple[tuple[int, int], str, str | None]] = {}

    def as_printed(text: str) -> str:
        return text.replace(str(folder), HERE).replace(str(port), PORT)

    def finish(name: str) -> Iterator[tuple[tuple[int, int], str]]:
        if name in running:
            terminals[name].wait()
            span, command, only = running.pop(name)
            yield span, as_printed(f"$ {command}\n{_shown(command, terminals[name].printed, only)}")

    try:
        for piece in PIECE.finditer(page):
            if piece["file"]:
                (folder / piece["file"]).write_text(piece["text"], encoding="utf-8")
            elif piece["edit"]:
                _edit(folder / piece["edit"], piece["start"], piece["text"])
            elif piece["pressed"]:
                if piece["after"]:
                    terminals[piece["where"]].wait_for(piece["after"])
                terminals[piece["pressed"]].press(KEYS[piece["key"]])
            else:
                name = piece["terminal"]
                yield from finish(name)
                terminal = terminals.setdefault(name, Terminal(folder))
                commands = re.findall(r"^\$ (.*)$", piece["text"], re.MULTILINE)
                if piece["stays"]:
                    [command] = commands
                    terminal.start(command.replace(PORT, str(port)))
                    running[name] = piece.span("text"), command, piece["only"]
                    continue
                printed = (_run(terminal, one, port, piece["only"]) for one in commands)
                yield piece.span("text"), as_printed("".join(printed))
        for name in list(running):
            yield from finish(name)
    finally:
        for terminal in terminals.values():
            terminal.press(signal.SIGKILL)


def _shown(command: str, printed: str, only: str | None) -> str:
    """Of a node's log a page has the first line, because the rest depends on chance; else all lines,
    or those that match.
    """
    lines = printed.splitlines(keepends=True)
    if "serve" in command:
        return f"{lines[0]}...\n"
    kept = ["...\n" if only and not re.search(only, line) else line for line in lines]
    return "".join(line for i, line in enumerate(kept) if line != "...\n" or kept[i - 1 : i] != [line])


def _run(terminal: Terminal, command: str, port: int, only: str | None) -> str:
    terminal.start(command.replace(PORT, str(port)))
    code = terminal.wait()
    assert code == 0, f"{command}: exit status {code}\n{terminal.printed}"
    return f"$ {command}\n{_shown(command, terminal.printed, only)}"


def _edit(path: Path, start: str, text: str) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    [place] = [number for number, line in enumerate(lines) if line.startswith(start)]
    lines[place] = text
    path.write_text("".join(lines), encoding="utf-8")


def replayed(page: str, folder: Path, port: int) -> str:
    """The page with what its commands really print."""
    for (start, end), text in sorted(play(page, folder, port), reverse=True):
        page = page[:start] + "\n".join(line.rstrip() for line in text.splitlines()) + "\n" + page[end:]
    return page
