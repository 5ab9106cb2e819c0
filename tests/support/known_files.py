"""Made-up files of data sets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pytest

from gal_bench.data.sources import Source


def make_known(
    monkeypatch: pytest.MonkeyPatch, sources: dict[str, Source], name: str, contents: Mapping[str, bytes]
) -> None:
    """From now on these contents are the known ones of a data set."""
    files = {file: hashlib.sha256(content).hexdigest() for file, content in contents.items()}
    monkeypatch.setitem(sources, name, Source(name, files, "somewhere"))
