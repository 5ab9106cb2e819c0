"""Answers that cannot be meant to help: left out of the weights in learning, noticed in prediction."""
