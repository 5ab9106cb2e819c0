"""Replies of organizations, checked: no reply can spoil a round of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gal.core.requests import FitRequest, PredictRequest
from gal.core.state import Ensemble
from gal.core.task import Task
from gal.errors import NoRepliesError, NoReplyError

Floats32 = NDArray[np.float32]
Reply = ArrayLike | Exception
"""Fitted values, or what went wrong at the organization."""

ABSURD = 1e6
"""Fitted values this many times larger than the largest residual are refused."""

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class LocalPredictions:
    """Predictions of the local models that count, with gaps filled by mean replies."""

    values: Mapping[str, Floats32]
    """By organization, shape (rounds, n, K)."""
    missing: Mapping[str, str]
    """Organizations without a usable reply, and why."""
    degraded: NDArray[np.bool_]
    """Rows (n,) that at least one organization did not predict."""
    gaps: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    """By organization that did not predict all rows: the others."""


def accept_fitted(
    task: Task, request: FitRequest, replies: Mapping[str, Reply]
) -> tuple[dict[str, Floats32], dict[str, str]]:
    """Usable fitted values by organization, ordered by name; the others, and why they are left out."""
    limit = ABSURD * max(-float(request.residual.min()), float(request.residual.max()))
    shape = (task.rows.n, task.loss.n_outputs)
    fitted, left_out = dict[str, Floats32](), dict[str, str]()
    for name in request.organizations:
        values, problem = read_reply(replies.get(name), shape, limit)
        if values is None:
            left_out[name] = problem
        else:
            fitted[name] = values
    if not fitted and request.round == 1 and request.track == "assisted" and request.fold is None:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise NoRepliesError(
            f"round 1: no organization gave usable fitted values ({reasons}). "
            "Check the local models and views of these organizations."
        )
    return fitted, left_out


def accept_predicted(
    ensemble: Ensemble, request: PredictRequest, replies: Mapping[str, Reply], n_rows: int
) -> LocalPredictions:
    """Predictions by organization; a row or organization without any gets the mean reply."""
    shape = (len(request.rounds), n_rows, ensemble.n_outputs)
    values: dict[str, Floats32] = {}
    missing: dict[str, str] = {}
    gaps: dict[str, NDArray[np.bool_]] = {}
    for name in request.organizations:
        means = np.array(
            [ensemble.mean_reply(index, name) for index in request.rounds], dtype=np.float32
        ).reshape(len(request.rounds), 1, ensemble.n_outputs)
        reply, problem = read_reply(replies.get(name), shape, limit=np.inf, gaps=True)
        counts = np.array([ensemble.counts(index, name) for index in request.rounds])
        if reply is not None and n_rows > 0:
            # A round that it missed has no coefficient, and needs no prediction.
            reply = np.where(np.isnan(reply) & ~counts[:, None, None], means, reply)
            gone = np.asarray(np.isnan(reply).all(axis=(1, 2)))
            without = [index for index, nothing in zip(request.rounds, gone, strict=True) if nothing]
            if without:
                reply, problem = None, f"has no model of round {', '.join(map(str, without))}"
        if reply is None:
            missing[name] = problem
            values[name] = np.broadcast_to(means, shape)
            gaps[name] = np.ones(n_rows, dtype=np.bool_)
            continue
        unknown = np.asarray(~np.isfinite(reply).all(axis=(0, 2)))
        if unknown.any():
            reply = np.where(unknown[None, :, None], means, reply)
            gaps[name] = unknown
        values[name] = reply
    degraded = np.logical_or.reduce([np.zeros(n_rows, dtype=np.bool_), *gaps.values()])
    return LocalPredictions(values, missing, degraded, gaps)


def accept_reevaluated(
    task: Task, request: PredictRequest, replies: Mapping[str, Reply]
) -> tuple[dict[str, Floats32], dict[str, str]]:
    """Current predictions of stateful models, shape (rounds, n, K); the unusable replies, and why.

    A round without a model is NaN throughout, and stays so; NaN elsewhere makes the reply unusable.
    """
    current: dict[str, Floats32] = {}
    failed: dict[str, str] = {}
    for name in request.organizations:
        shape = (len(request.rounds), task.rows.n, task.loss.n_outputs)
        values, problem = read_reply(replies.get(name), shape, limit=np.inf, gaps=True)
        if values is not None:
            known = values[~np.isnan(values).all(axis=(1, 2))]
            _, problem = read_reply(known, known.shape, LARGEST)
        if values is None or problem:
            failed[name] = f"re-evaluated after the last round, it {problem}"
        else:
            current[name] = values
    return current, failed


def read_reply(
    reply: Reply | None, shape: tuple[int, ...], limit: float, *, gaps: bool = False
) -> tuple[Floats32 | None, str]:
    """The reply as float32 of this shape, or None and what is wrong with it."""
    if reply is None:
        return None, "did not reply"
    if isinstance(reply, NoReplyError):
        return None, str(reply)
    if isinstance(reply, Exception):
        return None, f"failed: {reply}"
    try:
        with np.errstate(over="ignore"):
            values = np.asarray(reply, dtype=np.float32)
    except Exception as error:  # whatever it is: converting runs the code of the reply's own type
        return None, f"replied with something that is not numbers: {error}"
    if values.shape != shape:
        return None, f"replied with shape {values.shape}, expected {shape}"
    if gaps or values.size == 0:
        return values, ""
    if not np.isfinite(values).all():
        return None, f"replied with NaN or infinite values in {int((~np.isfinite(values)).sum())} places"
    if (largest := float(np.abs(values).max())) > limit:
        return (
            None,
            f"replied with absurd values, up to {largest:.3g} where residuals reach {limit / ABSURD:.3g}",
        )
    return values, ""
