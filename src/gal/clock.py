"""What time it is; whoever asks is given this, or a clock of its own."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The time now, UTC."""
    return datetime.now(UTC)
