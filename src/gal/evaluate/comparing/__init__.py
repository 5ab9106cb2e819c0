"""How models are compared: repeated splits, what rows add to a score, intervals, and the verdict."""
