"""Logs: one line per event, whatever a peer puts into a value; shapes, never data."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gal.node.store.logs import LONGEST, open_log


def written(log_as_json: bool, event: str = "fitted", **fields: object) -> str:
    """What one event writes."""
    to = io.StringIO()
    open_log(Path("/home/of/node"), as_json=log_as_json, to=to).info(event, **fields)
    return to.getvalue()


def test_a_readable_line() -> None:
    line = written(False, peer="bank", round=3, seconds=0.123456789, late=False, why="two words")
    time, level, rest = line.split(maxsplit=2)
    assert time.endswith("+00:00")
    assert level == "info"
    assert rest == 'fitted peer=bank round=3 seconds=0.123457 late=false why="two words"\n'


def test_a_json_line() -> None:
    line = json.loads(written(True, peer="bank", round=3, seconds=0.5, missing=["a", "b"], nothing=None))
    assert line.pop("time").endswith("+00:00")
    assert line == {
        **{"level": "info", "event": "fitted", "peer": "bank", "round": 3, "seconds": 0.5},
        **{"missing": ["a", "b"], "nothing": None},
    }


NASTY = st.text(st.characters(codec=None), max_size=60) | st.sampled_from(
    [
        "a\nlevel=error",
        "\x1b[2J",
        "\x7f",
        "\x85x",
        "\u2028",
        "\u202e",
        "\r",
        'a" peer="bank',
        "\ud800",
        "a b=c",
    ]
)


@given(NASTY, st.booleans())
def test_no_value_can_forge_a_line_or_reach_the_terminal(value: str, as_json: bool) -> None:
    for line in (
        written(as_json, why=value),
        written(as_json, value),
        written(as_json, error=ValueError(value)),
        written(as_json, names=[value]),
    ):
        assert line.endswith("\n")
        assert line[:-1].isascii()
        assert line[:-1].isprintable()


@given(NASTY)
def test_a_value_cannot_be_taken_for_another_field(value: str) -> None:
    rest = written(False, why=value, peer="bank").split(" fitted why=", 1)[1]
    if rest.startswith('"'):
        text, end = json.JSONDecoder().raw_decode(rest)
        assert text == value
        assert rest[end:] == " peer=bank\n"
    else:
        assert rest == f"{value} peer=bank\n"
        assert not set(value) & set(' ="')


@pytest.mark.parametrize("as_json", [True, False])
def test_data_is_never_written(as_json: bool) -> None:
    data = np.full((1234, 3), 987654.0)
    table = pd.DataFrame(data, columns=["secret", "b", "c"])
    for value in (
        data,
        table,
        table["secret"],
        data.tolist(),
        [987654.5, 1.5],
        [[987654]],
        data.tobytes(),
        dict.fromkeys(range(50), 987654),
    ):
        line = written(as_json, view=value)
        assert "987654" not in line
        assert "secret" not in line
        assert len(line) < 200
    assert "ndarray 1234x3" in written(as_json, view=data)
    assert "object" in written(as_json, thing=object())


def test_long_values_are_cut_and_paths_are_relative_to_the_home() -> None:
    line = json.loads(
        written(True, why="x" * 10_000, file=Path("/home/of/node/tasks/a"), other=Path("/etc/b"))
    )
    assert line["why"] == "x" * LONGEST + "..."
    assert (line["file"], line["other"]) == ("tasks/a", "/etc/b")


def test_a_field_cannot_replace_time_level_and_event() -> None:
    line = json.loads(written(True, level="error", time="never"))
    assert (line["level"], line["level_"], line["time_"]) == ("info", "error", "never")


class Full(io.StringIO):
    """A stream on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_stream_that_fails_does_not_stop_the_node(capsys: pytest.CaptureFixture[str]) -> None:
    open_log(None, to=Full()).info("begun")
    assert capsys.readouterr().err == ""
