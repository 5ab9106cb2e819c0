"""One of the label holder's two models as it is concluded, and the rows that judge it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gal.core.closings import ClosingModel
from gal.core.cross_validation import Judgement
from gal.core.probes.kept_probes import Probes, Replies
from gal.core.state import Progress

Floats32 = NDArray[np.float32]


class Concluded(Protocol):
    """One of the label holder's two models, as it is concluded."""

    @property
    def progress(self) -> Progress:
        """All rounds."""

    @property
    def kept(self) -> int:
        """How many of them it uses."""

    @property
    def trust(self) -> float:
        """What share of all steps is kept."""

    @property
    def coefficients(self) -> tuple[Mapping[str, float], ...]:
        """Of the rounds that it uses."""

    @property
    def closing(self) -> ClosingModel | None:
        """What closes it."""

    @property
    def probes(self) -> Probes | None:
        """Interaction probes that it keeps."""

    @property
    def probe_replies(self) -> Replies:
        """Their replies, of the sample of rows."""

    @property
    def judged(self) -> Judgement | None:
        """Its cross-validation, where there is one."""

    @property
    def dropped(self) -> frozenset[str]:
        """Who has no part in it."""
