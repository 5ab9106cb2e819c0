"""Names are safe wherever they are put."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gal.errors import InvalidInputError
from gal.protocol import check_name, is_name

names = st.from_regex(re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII), fullmatch=True)


@given(names)
def test_a_name_is_itself_one_part_of_a_path_and_one_word(name: str) -> None:
    assert check_name(name, "a task") == name
    assert PurePosixPath("folder", name).parts == ("folder", name)
    assert name.isascii()
    assert name.isprintable()
    assert len(name.split()) == 1


@given(st.text())
def test_everything_else_is_refused(text: str) -> None:
    good = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text) is not None
    assert is_name(text) is good
    if not good:
        with pytest.raises(InvalidInputError, match="a task needs a name"):
            check_name(text, "a task")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a\\b",
        "a b",
        "a\n",
        "\na",
        "-a",
        "a\0",
        "é",
        "a" * 65,
        "\u202ea",
        "ａ",
        "١",
    ],
)
def test_tricks_are_refused_and_shown_escaped(text: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check_name(text, "an organization")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("value", [None, 1, b"bank", ["bank"], True])
def test_only_text_is_a_name(value: object) -> None:
    assert not is_name(value)
