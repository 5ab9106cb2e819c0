"""Organizations of this process that round as nodes do: sums of both are then the same to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gal.node.config.aggregation_messages import own_secret
from gal.transport import load_identity


@contextmanager
def rounding_as_nodes(home: Callable[[str], Path]) -> Iterator[None]:
    """Each with the secret of the node in this folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "gal.secure_aggregation.in_process.simulated_secret",
            lambda name: own_secret(load_identity(home(name), name)),
        )
        yield
