"""The label holder: quorum, rounds, predictions, and the protection of its labels."""
