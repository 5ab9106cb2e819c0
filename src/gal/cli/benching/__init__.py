"""Commands for researchers: the paper's tables."""
