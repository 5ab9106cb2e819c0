"""Warnings that users may want to filter by kind."""


class GALWarning(UserWarning):
    """Base of all warnings of GAL."""


class SharedColumnsWarning(GALWarning):
    """Two organizations claim the same column: allowed, but often a mistake."""


class LeftOutWarning(GALWarning):
    """An organization was left out of rounds because its replies could not be used."""


class InterruptedWarning(GALWarning):
    """Learning was interrupted; the finished rounds were kept."""
