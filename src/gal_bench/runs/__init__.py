"""One run of a table (tabular, deep, leak meter), and local models by name."""
