"""What a node writes down: messages on record, logs for operators, metrics, failures in words."""
