"""Adversaries among the organizations: what they do, what it costs with and without defences."""
