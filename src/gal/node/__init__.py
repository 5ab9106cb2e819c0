"""Nodes: each organization as its own process, with its own data, keys and records."""
