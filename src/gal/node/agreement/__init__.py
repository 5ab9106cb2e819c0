"""What both sides of a task agree on: its terms, invitations, and which rows are meant."""
