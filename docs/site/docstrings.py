"""Docstrings as the site shows them: examples as code, roles of reStructuredText as plain code."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^(?P<indent>[ ]*)>>> .*(?:\n(?![ ]*$).*)*", re.MULTILINE)
"""From a prompt to the next empty line."""
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`")


class Shown(griffe.Extension):
    """What is done to every docstring before it becomes a page."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = shown(obj.docstring.value)


def shown(text: str) -> str:
    """With fences around examples.

    >>> print(shown("Adds.\\n\\n>>> 1 + 1\\n2").replace("`", "'"))
    Adds.
    <BLANKLINE>
    '''pycon
    >>> 1 + 1
    2
    '''
    """
    text = ROLE.sub(r"`\1`", text)
    return EXAMPLE.sub(lambda found: f"{found['indent']}```pycon\n{found[0]}\n{found['indent']}```", text)
