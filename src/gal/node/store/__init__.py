"""What a node keeps: state and audit log in SQLite, files written whole, views."""
