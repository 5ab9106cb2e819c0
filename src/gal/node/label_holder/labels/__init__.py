"""The labels of a label holder's tasks: read, protected, and charged before any use."""
