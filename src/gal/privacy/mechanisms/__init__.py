"""The privacy mechanisms: their noise, cost, attacker and names, a file for each kind.

``contract.py`` defines a mechanism; ``gal.privacy.registry`` lists them.
"""
