"""Writes one message of every kind, and a greeting, as this release has them as bytes.

``python tests/support/recording.py > tests/protocol/recorded/VERSION.json``, run once for a release: later
ones are tested against what it wrote. No private key is in it.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import numpy as np

import gal
from gal.protocol import Message, encode
from gal.transport import make_identity

TASK, ROWS, NONCE = "0123456789abcdef" * 2, "sha256:" + "5" * 64, "ab" * 32
DIALER = "sha256:" + "d" * 64
"""Who dials; only the fingerprint is signed."""


def messages() -> list[Message]:
    """One message of every kind that has no secret in it."""
    ids = {"kind": "integer", "method": "plain", "secret": ""}
    answers = {"answers": "sha256:" + "a" * 64}
    integers = np.arange(3, dtype=np.int64)
    flags = np.array([1, 0, 1], dtype=np.uint8)
    values = np.linspace(-1, 1, 4, dtype=np.float32).reshape(4, 1)
    begin = {"terms": ROWS, "organization": "lab", "n_outputs": 1, "rounds": 4, "seed": 7}
    joined = {"tasks": [{"task": TASK, "terms": ROWS, "moving": False}]}
    made: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("hello", {"versions": [1], "software": "gal-learn 0.1.0", "nonce": NONCE}, {}),
        ("refusal", {"code": "no-hello", "message": "a sentence", "answers": None}, {}),
        ("joined", joined, {}),
        ("leave", {"reason": ""}, {}),
        ("blind", {"step": "setup", "kind": "integer", "exchange": TASK, "n_rows": 3}, {"bytes": flags}),
        ("blinded", answers, {"bytes": flags}),
        ("begin", ids | begin, {"integers": integers, "fit": flags}),
        ("begun", answers | {"rows": ROWS, "n_rows": 2}, {"known": flags}),
        ("fit", {"rows": ROWS, "round": 2, "track": "assisted", "part": None}, {"residual": values}),
        ("fitted", answers | {"rows": ROWS, "round": 2}, {"fitted": values}),
        ("predict", ids | {"track": "assisted", "rounds": [1, 2]}, {"integers": integers}),
        ("revisit", {"rows": ROWS, "track": "alone", "rounds": [1]}, {}),
        ("predicted", answers | {"rows": ROWS}, {"known": flags, "values": values.reshape(2, 2, 1)}),
        ("end", {"kept": 4}, {}),
        ("done", answers, {}),
    ]
    without = {"hello", "joined"}
    return [
        Message(kind, "" if kind in without else TASK, 0 if kind in without else 3, "r", fields, arrays)
        for kind, fields, arrays in made
    ]


def greeting() -> dict[str, str]:
    """What a listener of this release answers to the hello: its certificate, and its welcome."""
    from gal.transport.handshake import welcome

    class Heard:
        peer, fingerprint = "lab", DIALER

        def receive(self) -> Any:
            return type("Received", (), {"message": messages()[0]})

        def send(self, message: Message) -> None:
            self.said = message

        def agree(self, *_: object) -> None: ...

    listener, heard = make_identity("clinic"), Heard()
    welcome(heard, listener, software="gal-learn 0.1.0", largest=1000)  # type: ignore[arg-type]
    return {"certificate": listener.certificate.decode(), "welcome": _text(heard.said)}


def _text(message: Message) -> str:
    return base64.b64encode(bytes(encode(message))).decode()


if __name__ == "__main__":
    recorded = {one.kind: _text(one) for one in messages()}
    json.dump({"release": gal.__version__, "messages": recorded, **greeting()}, sys.stdout, indent=1)
    print()
