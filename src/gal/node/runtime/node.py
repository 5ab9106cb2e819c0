"""A node: the process of one organization in both roles, assembled from its components."""

from __future__ import annotations

import fcntl
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gal import __version__
from gal.clock import utc_now
from gal.errors import IdentityError, LinkLostError, NodeRunsError
from gal.node.assistant.links import Links
from gal.node.assistant.service import Service
from gal.node.config.configuration import LEDGER, NodeConfiguration, read_configuration
from gal.node.label_holder.assistants import Assistants
from gal.node.runtime.carrier import Called, Calls, Carrier, Pace
from gal.node.store.activity import Activity
from gal.node.store.audit import AuditLog
from gal.node.store.files import empty_temporary_folder
from gal.node.store.logs import Log, open_log
from gal.node.store.records import Quotas, Records
from gal.node.store.state import State
from gal.node.worker.erasing import drop_leftovers
from gal.node.worker.worker import Worker
from gal.transport import CardFolder, Identity, Listener, Stream, dial, load_identity

if TYPE_CHECKING:
    from gal.privacy.ledger import Ledger

SOFTWARE = f"gal-learn {__version__}"
DESCRIPTORS = 65_536
"""Open files and connections that are enough for a node."""


class Node:
    """A running organization: ``with Node(home) as node`` starts and ends it.

    With ``listens=False``, the port of a label holder stays closed until ``listen`` is called. Over a
    carrier no port is opened and no connection made: a label holder has a ``carrier``, an organization is
    ``called``.
    """

    def __init__(
        self,
        home: Path,
        *,
        log: Log | None = None,
        clock: Callable[[], datetime] = utc_now,
        dials: bool = True,
        listens: bool = True,
        carrier: Carrier | None = None,
        called: Called | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.home = home.absolute()
        self.configuration: NodeConfiguration = read_configuration(self.home)
        self.name = self.configuration.name
        self.log = open_log(self.home) if log is None else log
        self._clock, self._dials, self._listens = clock, dials, listens
        self._carrier, self._called, self._pace = carrier, called, pace
        self.port: int | None = None
        self._stack = ExitStack()
        self._ledger: Ledger | None = None
        self._opening = threading.Lock()

    @property
    def ledger(self) -> Ledger:
        """The privacy ledger, opened at its first use and closed with the node."""
        with self._opening:
            if self._ledger is None:
                from gal.privacy.ledger import Ledger

                self.state.check_ledger(self.home / LEDGER)
                self._ledger = Ledger(self.home / LEDGER, as_spent=self.state.spent_reason)
            return self._ledger

    def _close_ledger(self) -> None:
        with self._opening:
            if self._ledger is not None:
                self._ledger.close()
                self._ledger = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.log.info("ended", organization=self.name)

    def _start(self) -> None:
        configuration, stack = self.configuration, self._stack
        stack.enter_context(held_lock(self.home, self.name))
        raise_descriptor_limit()
        stack.callback(self._close_ledger)
        self.identity: Identity = load_identity(self.home, self.name)
        self.cards = CardFolder(
            self.home / "cards", on_warning=lambda why: self.log.warning("unusable card", why=why)
        )
        self.state = State(self.home)
        stack.callback(self.state.close)
        drop_leftovers(self.state)
        empty_temporary_folder(self.home)
        audit = AuditLog(self.state.path, clock=self._clock, database=self.state.database)
        if why := self.state.spent_reason():
            self.log.warning("restored", why=why)
        activity = Activity()
        self.records = Records(audit, self.log, activity, Quotas(configuration.policy, self._clock))
        self.worker = Worker(configuration)
        stack.callback(self.worker.close)
        made = configuration, self.state, self.worker, self.log, activity, self._clock
        self.service = Service(*made, ledger=lambda: self.ledger)
        self.assistants = Assistants(self.state, self.records)
        stack.callback(self.assistants.close)
        self.links = Links(self.state, self.service, self.records, self._dial)
        if self._dials:
            self.links.start()
            stack.callback(self.links.close)
        if self._called is not None:
            stack.callback(self._called.close)
        if self._listens:
            self.listen()

    def listen(self) -> None:
        """Accept streams of organizations at a label holder, once everything else is ready."""
        how: Any = {"on_stream": self.assistants.on_stream, **self._limits()}
        if self._carrier is not None:
            calls = Calls(
                self._carrier,
                self.identity,
                self.cards,
                awaits=lambda name: any(one.organization == name for one in self.assistants.open_requests()),
                on_refused=lambda peer, why: self.records.turned_away("", f"{peer}: {why}"),
                pace=self._pace,
                **how,
            )
            calls.start()
            self._stack.callback(calls.close)
        elif self.configuration.listen is not None and self._called is None:
            listener = Listener(
                self.configuration.listen.bind,
                self.identity,
                self.cards,
                on_refused=lambda fingerprint, why: self.records.turned_away(fingerprint or "", why),
                **how,
            )
            self.port = self._stack.enter_context(listener).port
        self.log.info(
            "started", organization=self.name, fingerprint=self.identity.fingerprint, port=self.port
        )

    def _dial(self, peer: str) -> Stream:
        card = self.cards.get(peer)
        if card is None:
            raise IdentityError(
                f"there is no card of {peer} any more: gal cards add FILE, or gal forget its tasks"
            )
        known: Any = {"cards": self.cards, **self._limits()}
        if self._called is None:
            return dial(card, self.identity, **known, proxy=self.configuration.network.proxy)
        if peer != self._called.label_holder:
            raise LinkLostError(
                f"this node is called by {self._called.label_holder} over a carrier, and cannot reach {peer} "
                "(gal serve can)"
            )
        return self._called.dial(card, self.identity, **known)

    def _limits(self) -> dict[str, Any]:
        return {"largest": self.configuration.policy.largest_message, "software": SOFTWARE}


@contextmanager
def held_lock(home: Path, name: str) -> Iterator[None]:
    """The lock of a home folder, so that one process at a time uses it."""
    with open(home / "node.lock", "a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise NodeRunsError(
                f"a node of {name} already runs in {home}: end it first (gal status shows it)"
            ) from error
        yield


def raise_descriptor_limit(wanted: int = DESCRIPTORS) -> None:
    """Raise the limit of open files of this process towards ``wanted``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
