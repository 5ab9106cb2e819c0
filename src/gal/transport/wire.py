"""gRPC as nodes use it: one method of one service, its options, its errors.

All modules import ``grpc`` from here: its own lines on stderr, such as each failed handshake, are switched
off before it is imported (set GRPC_VERBOSITY to see them).
"""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from typing import Any

import grpc

from gal.errors import IdentityError, LinkLostError, NodeError, RefusedError
from gal.protocol import FRAME

__all__ = ["CLIENT_OPTIONS", "CODE", "METHOD", "SERVER_OPTIONS", "SERVICE", "explain", "grpc"]

SERVICE, METHOD = "gal.Node", "Connect"

CODE = "gal-code"
"""The metadata key of a refusal's code, beside gRPC's status and its sentence."""

_BOTH = (
    ("grpc.max_receive_message_length", FRAME + 64),
    ("grpc.max_send_message_length", FRAME + 64),
    # A hanging peer or a dead connection is noticed after half a minute.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

CLIENT_OPTIONS = (*_BOTH, ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))

SERVER_OPTIONS = (
    *_BOTH,
    # The server with the next set of cards listens on the same port.
    ("grpc.so_reuseport", 1),
    # A connection without finished TLS or without a stream is dropped; their number is bounded.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 15_000),
    ("grpc.max_allowed_incoming_connections", 2048),
    # A peer has one stream, and a second one while the first ends.
    ("grpc.max_concurrent_streams", 16),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)


def explain(call: Any, peer: str, address: str) -> NodeError:
    """Why this call ended, for the operator; ``address`` is the address, with the proxy if one is set."""
    code, details = call.code(), call.details() or ""
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        codes = [value for key, value in call.trailing_metadata() or () if key == CODE]
        refused = codes[0] if codes and isinstance(codes[0], str) else "refused"
        return RefusedError(refused, f"{peer} refused: {details}")
    if code is grpc.StatusCode.UNAVAILABLE:
        return _unavailable(details, peer, address)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return RefusedError(
            "no-node", f"the server at {address} is no node of GAL: check the address in the card of {peer}"
        )
    if code is grpc.StatusCode.OK:
        return LinkLostError(f"{peer} closed the stream")
    return LinkLostError(f"the stream to {peer} at {address} ended: {details or code}")


def _unavailable(details: str, peer: str, address: str) -> NodeError:
    """gRPC has one code for all failures before a call arrives; its details distinguish them."""
    if "HTTP proxy returned" in details:
        status = details.partition("HTTP proxy returned ")[2]
        return LinkLostError(
            f"the proxy did not connect to {peer} at {address} ({status}): may it connect to that port? Set "
            "network.proxy in node.toml, or no_proxy where none is needed"
        )
    if "CERTIFICATE_VERIFY_FAILED" in details or "Hostname Verification" in details:
        return IdentityError(
            f"the server at {address} does not hold the key in the card of {peer}: ask {peer} for its card "
            "again if it has a new key; otherwise another server is at this address"
        )
    if "WRONG_VERSION_NUMBER" in details:
        return IdentityError(
            f"the server at {address} does not speak TLS: check host and port in the card of {peer}"
        )
    if "failed to connect" in details and any(
        sign in details for sign in ("Socket closed", "ALERT", "handshake failed", "Connection reset")
    ):
        return RefusedError(
            "not-admitted",
            f"{peer} at {address} ended the connection while the keys were checked: has {peer} added your "
            "card, and is it of your present key?",
        )
    if "lookup" in details or "resol" in details:
        return LinkLostError(
            f"no host of this name is known: {address}: check the network and the address in the card of "
            f"{peer}"
        )
    if "onnect" in details and "Stream removed" not in details:  # an open one can be reset, too
        return LinkLostError(
            f"{peer} cannot be reached at {address} ({details.rpartition('remote host: ')[2][:200]}): does "
            "its node run, and is the address in its card right?"
        )
    return LinkLostError(f"the stream to {peer} at {address} was lost: {details}")
