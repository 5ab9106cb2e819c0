"""``gal bench``: its options, its runs, and what it prints."""
