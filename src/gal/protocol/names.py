"""Names of organizations and tasks: safe in a path, a log line and a terminal."""

from __future__ import annotations

import re

from gal.errors import InvalidInputError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def is_name(name: object) -> bool:
    """Whether this can name an organization or a task.

    >>> is_name("bank-2"), is_name("../bank"), is_name("")
    (True, False, False)
    """
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def check_name(name: str, what: str) -> str:
    """The name itself, or an error; ``what`` says whose it is, such as "a task"."""
    if not is_name(name):
        raise InvalidInputError(
            f"{what} needs a name of 1 to 64 letters, digits, dots, hyphens and underscores that begins "
            "with a "
            f"letter or digit, got {name!r:.80}"
        )
    return name
