"""The protocol: what travels between nodes, as bytes that are checked before they are used."""

# ruff: noqa: E402
from gal.extras import require as _require

_require("node", "talking to nodes")

from gal.protocol.codec import Encoded, decode, digest, encode, prepare, restore
from gal.protocol.frames import FRAME, Assembler, split
from gal.protocol.messages import KINDS, Kind, Message
from gal.protocol.names import check_name, is_name
from gal.protocol.shared_bytes import SharedBytes, shared
from gal.protocol.versions import VERSIONS, choose, in_version

__all__ = [
    "FRAME",
    "KINDS",
    "VERSIONS",
    "Assembler",
    "Encoded",
    "Kind",
    "Message",
    "SharedBytes",
    "check_name",
    "choose",
    "decode",
    "digest",
    "encode",
    "in_version",
    "is_name",
    "prepare",
    "restore",
    "shared",
    "split",
]
