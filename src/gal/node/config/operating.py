"""Sections of ``node.toml`` about running a node for years: learning again by the calendar, traces, the
process that computes.
"""

from __future__ import annotations

from datetime import time
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _time_of_day(value: str) -> str:
    try:
        time.fromisoformat(value)
    except ValueError as error:
        raise ValueError(f'expected a time of day (UTC) such as "03:00", got {value!r:.80}') from error
    return value


def _web_address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.password is not None:
        raise ValueError(f'expected an address such as "http://127.0.0.1:4318/v1/traces", got {value!r:.80}')
    return value


class _Operating(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ScheduleSection(_Operating):
    """Which own tasks are learned again by themselves, and when."""

    learn: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)] = ()
    """Names of own tasks that have a version already: the first one is for people to learn."""
    every_days: Annotated[int, Field(ge=1, le=3660)] = 7
    at: Annotated[str, AfterValidator(_time_of_day)] = "03:00"
    """Time of day, UTC."""
    require_all: bool = False
    """A version without all organizations that are invited does not predict."""


class TracesSection(_Operating):
    """Where traces go: a collector of one's own; None: there are none."""

    endpoint: Annotated[str, AfterValidator(_web_address)] | None = None


class WorkerSection(_Operating):
    """The process that computes: it is started when it is needed."""

    idle_seconds: Annotated[float, Field(ge=0, le=30 * 86400)] = 300.0
    """It ends when nothing was asked of it for so long; 0: it stays."""
