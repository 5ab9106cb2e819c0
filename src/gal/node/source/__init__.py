"""Where an organization's data lies: files and databases, read into views."""
