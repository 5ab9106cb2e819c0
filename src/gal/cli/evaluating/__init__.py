"""Commands for a table at hand, before any node runs: would assistance help, and what would leak?"""
