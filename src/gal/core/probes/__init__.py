"""Interaction probes: what columns of several organizations mean together, found after the rounds."""
