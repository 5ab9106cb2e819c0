"""One run of a table: tabular, deep, with the leak meter; and the local models that rows name."""
