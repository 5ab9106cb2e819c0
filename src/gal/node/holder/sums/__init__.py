"""Sums over nodes, at the label holder's: she asks for them, learns from them, and predicts from them."""
