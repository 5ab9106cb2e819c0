"""The checks of ``gal doctor`` on a node, with a remedy for each failure.

Every check ends in findings, never in an exception. Nothing is changed; where the node does not run, a label
holder's port is opened for a moment, and label holders are greeted.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gal.alignment import read_secret
from gal.errors import GALError, LinkLostError
from gal.node.config.configuration import FILE, NodeConfiguration, read_configuration
from gal.node.runtime.control import running_node
from gal.node.runtime.web.node_facts import disk_room, free_disk
from gal.node.runtime.web.server import listening_socket
from gal.node.store.files import temporary_folder
from gal.node.worker.answer_noise import answer_noise, check_noise_installed, noise_facts
from gal.node.worker.sandbox import landlock_version
from gal.node.worker.worker import ENDED, Worker, WorkFailedError
from gal.protocol.names import parse_address
from gal.transport import Card, CardFolder, dial, load_identity, read_card

SECONDS = 3.0
"""For a connection to a label holder."""
HANDSHAKE_SECONDS = 10.0
TRIED = 1 << 16
"""Bytes to write as a test of the disk."""
LITTLE = 10**9
"""Bytes of free disk below which learning may fail."""
ROWS = 20
"""Rows for a trial of the local model."""
LOOKED_AT = 10_000
"""Rows of a database or a lake that are read as a trial."""
MOSTLY_NOISE = 3.0
"""A larger standard deviation of noise hides most of fitted values, whose own is about 1."""
ROTATE = "gal cards rotate makes a new key and card, to be sent to the others"


@dataclass(frozen=True)
class Finding:
    what: str
    ok: bool | None
    """None: a warning, or it could not be checked."""
    message: str
    fix: str = ""
    """The remedy, if one is needed."""


def examine(home: Path) -> list[Finding]:
    """Check everything that a node in this folder needs, in the order of repair."""
    home, found = Path(home).absolute(), list[Finding]()

    def look(subject: str, findings: Iterator[Finding], fix: str = "see the message") -> None:
        try:
            found.extend(findings)
        except GALError as error:
            found.append(Finding(subject, False, str(error), fix))
        except Exception as error:
            report = "report this, if it is not clear what to do"
            found.append(Finding(subject, False, f"{type(error).__name__}: {error}", report))

    look("folder", _folder(home))
    try:
        configuration = read_configuration(home)
    except GALError as error:
        there = (home / FILE).exists()
        fix = f"correct {FILE}; each line above says where" if there else "gal init NAME makes one"
        return [*found, Finding("configuration", False, str(error), fix)]
    found.append(Finding("configuration", True, f"{FILE} of organization {configuration.name!r} is fine"))
    table: list[Any] = []
    look("data", _data(configuration, table), f"correct the data, or [data] in {FILE}")
    look("model", _model(configuration, table))
    look("sandbox", _sandbox())
    look("restored", _restored(configuration))
    look("secret", _secret(configuration), "put the shared secret of the organizations there")
    look("privacy", _privacy(configuration), "pip install 'gal-learn[privacy]'")
    look("key", _identity(configuration))
    look("cards", _cards(configuration))
    with running_node(home) as running:
        runs = running is not None
    look("port", _port(configuration, runs=runs))
    cards = CardFolder(home / "cards")
    for peer, card in sorted(cards.all().items()):
        if card.address is not None:
            fix = f"compare cards, keys and versions with {peer}"
            look(peer, _greeted(configuration, cards, peer, card, runs=runs), fix)
    return found


def _folder(home: Path) -> Iterator[Finding]:
    """Whether the home folder exists, is private and writable, and has room."""
    if not home.is_dir():
        yield Finding("folder", False, f"there is no folder {str(home)!r}", "gal init NAME makes one")
        return
    if mode := _open_to_others(home):
        message = f"{str(home)!r} has {mode}: others on this machine can read it"
        yield Finding("folder", None, message, f"chmod 700 {home}")
    try:
        with tempfile.NamedTemporaryFile(dir=home) as file:
            file.write(bytes(TRIED))  # an empty file can be made on a full disk
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        fix = "make room" if full else "let the user that runs the node write there"
        message = f"the disk of {str(home)!r} is full" if full else f"nothing can be written to {str(home)!r}"
        yield Finding("folder", False, f"{message}: {error.strerror or error}", fix)
        return
    free = free_disk(home)
    message = f"{str(home)!r} is writable, {disk_room(free)} are free"
    fix = "make room: every round stores a model and a reply" if free < LITTLE else ""
    yield Finding("folder", None if fix else True, message, fix)


def _data(configuration: NodeConfiguration, table: list[Any]) -> Iterator[Finding]:
    """Whether all rows, or the first of a streamed source, can be read; into ``table``."""
    if configuration.data is None:
        message = f"{FILE} has no section [data]: this node has no rows"
        yield Finding("data", None, message, "add [data] with source and row_id")
        return
    from gal.node.source.data import labels_of, read_some, read_source

    streams = configuration.data.is_streamed
    found = read_some(configuration, LOOKED_AT) if streams else read_source(configuration)
    table.append(found)
    rows = f"{'the first ' if streams else ''}{len(found)} rows with {found.ids.kind} ids"
    texts = sum(kind == "text" for kind in found.kinds.values())
    yield Finding("data", True, f"{rows}, {len(found.features)} features ({texts} of text)")
    if configuration.data.label is not None:
        try:
            labels_of(found)
            yield Finding("label", True, f"every row has a label ({configuration.data.label!r})")
        except GALError as error:
            fix = "rows without a label can be predicted, not learned from"
            yield Finding("label", None, str(error), fix)
    if configuration.model.use == "tabular":
        try:
            for message in columns_found(configuration, found, LOOKED_AT):
                yield Finding("columns", True, message)
        except GALError as error:
            yield Finding("columns", False, str(error), f"correct data.columns in {FILE}")


def columns_found(configuration: NodeConfiguration, table: Any, most: int) -> Iterator[str]:
    """The default model's reading of each column that is not a plain number, by the first ``most`` rows."""
    import pandas as pd

    from gal.models.reading.column_reading import column_readings, shown
    from gal.node.source.data import view_of_table

    view = view_of_table(table, np.arange(min(len(table), most)))
    frame = pd.DataFrame(view, columns=list(table.features)) if isinstance(view, np.ndarray) else view
    for name in table.dates:  # days since 1970
        frame[name] = pd.to_datetime(frame[name], unit="D", errors="coerce")
    text = [name for name, kind in table.kinds.items() if kind == "text"]
    frame = frame.astype(dict.fromkeys(text, object))
    declared = {} if configuration.data is None else configuration.data.columns
    plain = 0
    for one in column_readings(frame, declared):
        if one.is_plain or (one.kind == "id" and one.name not in text and not one.declared):
            plain += 1
            continue
        missing = f", {one.missing:.0%} missing" if one.missing else ""
        how = "as declared, " if one.declared else ""
        yield f"{shown(one.name, 40)}: {how}{one.kind}{missing} ({', '.join(one.examples)}): {one.done}"
    if plain:
        yield f"{plain} of {len(table.features)} are numbers as they are"


def _model(configuration: NodeConfiguration, table: list[Any]) -> Iterator[Finding]:
    """Whether the worker process can make the local model and fit some rows."""
    from gal.node.source.data import view_of_table
    from gal.node.store.views import save_view

    use, view = configuration.model.use, np.random.default_rng(0).normal(size=(ROWS, 3))
    if table:
        view = view_of_table(table[0], np.arange(min(ROWS, len(table[0]))))
    with (
        closing(Worker(configuration)) as worker,
        tempfile.TemporaryDirectory(prefix="gal-doctor-", dir=temporary_folder(configuration.home)) as folder,
    ):
        save_view(view, Path(folder) / "view")
        try:
            result, _ = worker("attempt", view=Path(folder) / "view")
        except WorkFailedError as error:
            fix = f"correct [model] in {FILE}; tabular takes missing values and text"
            if error.failure.code in {ENDED, "cpu-limit"}:
                fix = f"choose another model in {FILE}, or raise policy.fit_cpu_seconds or fit_memory"
            yield Finding("model", False, str(error), fix)
            return
    if result["fits"]:
        yield Finding("model", True, f"{use} can be made and fits {len(view)} rows")
    else:
        message = f"{use} returns shape {tuple(result['shape'])} or NaN for {len(view)} rows"
        yield Finding("model", False, message, "gal.models.check_local_model(model) finds out why")


def _sandbox() -> Iterator[Finding]:
    """Whether the worker process can be sandboxed."""
    if landlock_version() > 0:
        message = "it reads this folder, the data and Python, and writes this folder only"
        yield Finding("sandbox", True, f"the local model runs in a sandbox: {message}")
        return
    message = "this kernel has no Landlock: the local model can reach whatever this user can"
    fix = "use Linux 5.13 or newer with Landlock, or run the node as a user of its own"
    yield Finding("sandbox", None, message, fix)


def _restored(configuration: NodeConfiguration) -> Iterator[Finding]:
    """Whether the privacy budget is known after a restore."""
    from gal.node.store.state import State

    if (configuration.home / "state.sqlite").exists():
        with closing(State(configuration.home)) as state:
            if why := state.spent_reason():
                yield Finding("restored", None, why, "open new tasks with your partners")


def _open_to_others(path: Path) -> str:
    """The mode of a file that other users can read; empty where they cannot."""
    mode = stat.S_IMODE(path.stat().st_mode)
    return f"mode {mode:04o}" if mode & 0o077 else ""


def _secret(configuration: NodeConfiguration) -> Iterator[Finding]:
    """Whether the secret for keyed hashes is readable, and private."""
    if configuration.data is not None and (file := configuration.data.secret_file) is not None:
        read_secret(file, configuration.name)
        if mode := _open_to_others(file):
            message = f"others on this machine can read {file.name!r} ({mode})"
            yield Finding("secret", None, message, f"chmod 600 {file}")
        else:
            yield Finding("secret", True, f"{file.name!r} holds a secret for keyed hashes")


def _privacy(configuration: NodeConfiguration) -> Iterator[Finding]:
    """Whether noise is installed and useful, and whether labels have a budget."""
    chosen, facts = configuration.privacy, noise_facts(configuration)
    if facts is not None or chosen.label_epsilon is not None:
        check_noise_installed()
    if facts is not None:
        noise = answer_noise(facts)
        spread = noise.deviation(1)
        message = (
            f"replies are clipped at +-{noise.clip:g} and get {noise.noise} noise with a standard deviation "
            f"of {spread:.3g} (residuals have a root mean square of 1); each costs {noise.cost}"
        )
        fix = "choose a larger privacy.answer_epsilon or a smaller privacy.answer_clip"
        fix = "" if spread <= MOSTLY_NOISE else fix
        yield Finding("privacy", None if fix else True, message, fix)
    has_label = configuration.data is not None and configuration.data.label is not None
    if chosen.label_epsilon is not None:
        at = f" at delta {chosen.label_delta:g}" if chosen.label_delta else ""
        message = f"the budget of each label is epsilon {chosen.label_epsilon:g}{at}"
        yield Finding("labels", True, f"{message}; a task without a mechanism is refused")
    elif has_label and configuration.listen is not None:  # a label holder
        message = (
            "labels have no privacy budget: without a mechanism, every organization of a task can infer them"
        )
        fix = f"set privacy.label_epsilon in {FILE}, and choose a mechanism with gal invite --privacy"
        yield Finding("labels", None, message, fix)


def _identity(configuration: NodeConfiguration) -> Iterator[Finding]:
    """Whether key, certificate and card exist, are private, and belong together."""
    home, name = configuration.home, configuration.name
    key, path = home / "key.pem", home / f"{name}.card"
    if not key.exists():
        yield Finding("key", False, f"there is no {key.name} in {str(home)!r}", "gal init NAME makes one")
        return
    if mode := _open_to_others(key):
        message = f"others on this machine can read the private key ({mode})"
        fix = f"chmod 600 {key}, and gal cards rotate if it may have been read"
        yield Finding("key", False, message, fix)
        return
    identity = load_identity(home, name)
    yield Finding("key", True, f"key and certificate belong together: {identity.fingerprint}")
    if not path.exists():
        yield Finding("card", False, f"there is no card {path.name}", ROTATE)
        return
    card, address = read_card(path), None if configuration.listen is None else configuration.listen.address
    if card.fingerprint != identity.fingerprint:
        yield Finding("card", False, f"{path.name} is of another key ({card.fingerprint})", ROTATE)
    elif card.address != address:
        message = f"{path.name} has the address {card.address or 'none'}, {FILE} has {address or 'none'}"
        fix = f'write address = "{address}" into it' if address else "delete its line address"
        yield Finding("card", False, message, f"{fix}, and send it to the others")
    else:
        yield Finding("card", True, f"{path.name} is of this key")


def _cards(configuration: NodeConfiguration) -> Iterator[Finding]:
    """Whether the cards of other organizations can be read."""
    wrong: list[str] = []
    cards = CardFolder(configuration.home / "cards", on_warning=wrong.append).all()
    for warning in wrong:
        yield Finding("cards", False, warning, "ask its organization for the card, and add it again")
    if cards:
        yield Finding("cards", True, f"{len(cards)} known: {', '.join(sorted(cards))}")
    elif not wrong:
        yield Finding("cards", None, "there are none", "gal cards add FILE, for each organization")


def _port(configuration: NodeConfiguration, *, runs: bool) -> Iterator[Finding]:
    """Whether a label holder can listen, or listens."""
    if configuration.listen is None:
        return
    bind = configuration.listen.bind
    try:
        if not runs:
            listening_socket(bind).close()
    except GALError as error:
        yield Finding("port", False, str(error), f"choose another port or address in {FILE}: listen.bind")
    else:
        message = f"the node runs, and listens on {bind}" if runs else f"{bind} is free to listen on"
        yield Finding("port", True, message)


def _greeted(
    configuration: NodeConfiguration, cards: CardFolder, peer: str, card: Card, *, runs: bool
) -> Iterator[Finding]:
    """Whether a label holder can be reached and knows this node; the greeting only where it does not run."""
    proxy, address = configuration.network.proxy, card.address or ""
    proxied = proxy or os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    if not proxied:
        try:
            socket.create_connection(parse_address(address), timeout=SECONDS).close()
        except OSError as error:
            message = f"{address} cannot be reached: {error.strerror or error}"
            # A label holder that does not learn now may be away; an unknown address is wrong.
            away = isinstance(error, ConnectionRefusedError | TimeoutError)
            fix = (
                f"nothing, if {peer} does not learn now; otherwise ask {peer} whether its node runs, and "
                f"check that your network allows connections to {address}"
            )
            yield Finding(peer, None if away else False, message, fix)
            return
    if runs:  # a second stream with this key would end that of the running node
        message = f"{address} accepts connections; the running node knows whether {peer} accepts its card"
        yield Finding(peer, None if proxied else True, message, "gal status")
        return
    identity = load_identity(configuration.home, configuration.name)
    how: dict[str, Any] = {"proxy": proxy, "timeout": HANDSHAKE_SECONDS}
    try:
        dial(card, identity, cards=cards, largest=10**6, software="gal doctor", **how).close()
    except LinkLostError as error:
        fix = f"ask {peer} whether its node runs and has your card ({configuration.name}.card)"
        yield Finding(peer, False, str(error), fix)
    else:
        yield Finding(peer, True, f"{address} is {peer}, and accepts this node's card")
