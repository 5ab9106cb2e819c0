"""What can be done on the page: each asks again before it is done, and says what will be so."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from gal.errors import InvalidInputError


@dataclass(frozen=True)
class Question:
    """What is asked before something is done, and how it is done."""

    sentences: list[str]
    about: str
    """What the answer is about: where it is another one meanwhile, it is asked again."""
    do: Callable[[], str]
    """Does it, and says that it is done."""


Action = Callable[[Mapping[str, Any]], Question]


@dataclass(frozen=True)
class Asked:
    """A request: what to do it with, and the confirmation of what was asked before."""

    arguments: Mapping[str, Any]
    confirm: str

    @classmethod
    def of(cls, body: bytes) -> Self:
        """Read one."""
        try:
            found = json.loads(body)
            json.dumps(found, ensure_ascii=False).encode()  # half a character cannot be written down later
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"the request is not JSON: {error}") from error
        if not isinstance(found, dict) or not isinstance(found.get("confirm", ""), str):
            raise InvalidInputError('the request needs {"task": ...}, and "confirm" the second time')
        return cls({key: value for key, value in found.items() if key != "confirm"}, found.get("confirm", ""))


def confirmed(name: str, action: Action, asked: Asked, token: str) -> dict[str, Any]:
    """Do it where it was confirmed; else what to confirm."""
    question = action(asked.arguments)
    text = json.dumps([name, question.sentences, question.about])
    expected = hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(asked.confirm.encode(), expected.encode()):
        return {"done": False, "asks": question.sentences, "confirm": expected}
    return {"done": True, "said": question.do()}


def text_argument(arguments: Mapping[str, Any], name: str) -> str:
    """An argument that must be there, as text."""
    found = arguments.get(name)
    if not isinstance(found, str) or not found:
        raise InvalidInputError(f"the request needs {name!r}, a text")
    return found
