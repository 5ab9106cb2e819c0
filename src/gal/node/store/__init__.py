"""What a node keeps: state and audit log in SQLite, files, records of messages, quotas, logs, failures."""
