"""What a request to the page may hold, before anything is done with it."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")

from gal.errors import InvalidInputError
from gal.node.web.actions import Asked


@pytest.mark.parametrize(
    "body",
    [b'{"invitation": "\\ud800"}', b'{"task": "risk", "confirm": "\\udfff"}', b'{"\\ud800": 1}', b"[" * 9999],
    ids=["argument", "confirmation", "name", "nested"],
)
def test_what_cannot_be_written_down_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInputError, match="the request is not JSON"):
        Asked.of(body)


def test_text_of_any_language_is_taken() -> None:
    assert Asked.of('{"task": "Überlastung", "confirm": "\\ud83d\\ude00"}'.encode()).confirm == "\U0001f600"
