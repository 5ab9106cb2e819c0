"""What a running node shows: facts, the page, health, metrics; and predictions for own applications."""
