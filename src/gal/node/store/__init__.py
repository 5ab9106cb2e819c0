"""Everything that a node stores: state, audit log, files, records, quotas, logs, failures."""
