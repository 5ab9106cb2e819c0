"""What `pieces.py` is made of: the tables, and how each piece of the learner is switched off."""
