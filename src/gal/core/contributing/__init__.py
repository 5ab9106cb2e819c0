"""Who earned what: shares of the fall in loss, games of coalitions, and what some alone would bring."""
