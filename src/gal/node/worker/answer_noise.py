"""Noise on replies to other organizations, added in the worker process."""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gal.errors import MissingExtraError, PrivacyError
from gal.node.config.configuration import NodeConfiguration
from gal.storage.rereading import reread

if TYPE_CHECKING:
    from gal.privacy.mechanisms.answers import AnswerNoise
    from gal.privacy.noise import NoiseSource

Keys = NDArray[np.int64]

ROWS = "rows.npy"
"""In a version's folder: the ledger's keys of its rows, in order."""


def noise_facts(configuration: NodeConfiguration) -> dict[str, Any] | None:
    """The noise on replies in node.toml, as plain data; None where there is none."""
    chosen = configuration.privacy
    if chosen.answer_noise == "none":
        return None
    facts = {"clip": chosen.answer_clip, "epsilon": chosen.answer_epsilon, "delta": chosen.answer_delta}
    return {"noise": chosen.answer_noise} | facts


def answer_noise(facts: Mapping[str, Any], source: NoiseSource | None = None) -> AnswerNoise:
    """The noise of these facts; a source whose draws can be repeated is refused."""
    from gal.privacy.mechanisms.answers import AnswerNoise

    if source is not None and not source.secure:
        raise PrivacyError(
            f"a node draws no noise from {type(source).__name__}: noise that can be repeated can be removed. "
            "Use that of the operating system (SystemNoise)"
        )
    return AnswerNoise(**facts, source=source)


def check_noise_installed() -> None:
    """MissingExtraError where noise cannot be drawn, without slow imports."""
    for package in ("opendp", "dp_accounting"):
        if find_spec(package) is None:
            raise MissingExtraError("privacy", package, "noise on replies")


def key_bytes(ids: NDArray[Any]) -> bytes:
    """A file with the ledger's keys of these row ids."""
    from gal.privacy.ledger import row_keys

    file = io.BytesIO()
    np.save(file, row_keys(ids), allow_pickle=False)
    return file.getvalue()


def keys_of(file: bytes) -> Keys:
    found: Keys = reread(lambda: np.load(io.BytesIO(file), allow_pickle=False))
    return found
