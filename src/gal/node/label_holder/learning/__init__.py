"""Learning over nodes: organizations are gathered, versions begun, rounds carried, replies accepted."""
