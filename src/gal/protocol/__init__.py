"""The protocol: what travels between nodes, as bytes that are checked before they are used."""

# ruff: noqa: E402
from gal.extras import require as _require

_require("node", "talking to nodes")

from gal.protocol.codec import Encoded, decode, digest, encode, prepare, restore
from gal.protocol.frames import FRAME, Assembler, split
from gal.protocol.messages import KINDS, VERSIONS, Kind, Message
from gal.protocol.names import check_name, is_name

__all__ = [
    "FRAME",
    "KINDS",
    "VERSIONS",
    "Assembler",
    "Encoded",
    "Kind",
    "Message",
    "check_name",
    "decode",
    "digest",
    "encode",
    "is_name",
    "prepare",
    "restore",
    "split",
]
