"""Tools of others that GAL works with; each needs an extra of its own."""
