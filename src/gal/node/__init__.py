"""Nodes: each organization as its own process, with its own data, keys and records."""

from gal.extras import require as _require

_require("node", "running a node")
