"""``gal demo``: four organizations as processes learn over mutual TLS."""
