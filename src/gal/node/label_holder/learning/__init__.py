"""Learning over nodes: quorum wait, session setup, rounds, and secure aggregation."""
