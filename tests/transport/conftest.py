"""Two organizations that have each other's cards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from live_nodes import House


@pytest.fixture
def bank(tmp_path: Path) -> House:
    """A label holder."""
    from live_nodes import house  # here: it needs the extra node, without which tests skip one by one

    return house(tmp_path, "bank")


@pytest.fixture
def hospital(tmp_path: Path, bank: House) -> House:
    """An organization that the bank knows."""
    from live_nodes import house

    hospital = house(tmp_path, "hospital")
    bank.knows(hospital)
    return hospital
