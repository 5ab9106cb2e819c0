"""Each privacy mechanism in a file of its own kind: what it draws, what it costs, what an
attacker makes of it, its names.

``contract.py`` says what a mechanism is; ``gal.privacy.registry`` lists them.
"""
