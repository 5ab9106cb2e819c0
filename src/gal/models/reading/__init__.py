"""What columns of a table mean as people write them: numbers, dates, booleans, durations, text."""
