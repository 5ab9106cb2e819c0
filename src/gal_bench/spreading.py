"""Where runs go that do not wait for each other: cores of this machine, or workers of a Dask cluster.

Each run has one core, and finds the same surroundings everywhere: what comes out does not depend on where it
ran. Spread seeds and parts of a cross-validation, not organizations: a round is short, and waits for the
slowest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits

from gal.errors import InvalidOptionError
from gal.extras import require

T = TypeVar("T")
BACKENDS = {"loky": "", "dask": "tcp://HOST:8786"}
"""By name: what the address of a scheduler looks like."""
CONNECT = 10.0
"""Seconds to find the scheduler."""


@dataclass(frozen=True)
class Spread:
    """Which workers do the runs: processes of this machine (loky), or those of a cluster (dask)."""

    backend: str = "loky"
    scheduler: str | None = None
    n_jobs: int = -1
    """Runs side by side on this machine; -1: as many as there are cores. A cluster has its own number."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InvalidOptionError(f"backend must be one of {', '.join(BACKENDS)}, got {self.backend!r}")
        address = BACKENDS[self.backend]
        if address and self.scheduler is None:
            raise InvalidOptionError(
                f"the backend {self.backend} needs the address of its cluster: --backend {self.backend} "
                f"--scheduler {address}"
            )
        if not address and self.scheduler is not None:
            raise InvalidOptionError("a scheduler needs --backend dask beside it")
        if address:
            require(self.backend, "runs on a cluster")

    def run(self, job: Callable[..., T], cases: Iterable[tuple[Any, ...]], *, in_order: bool) -> Iterator[T]:
        """The result of ``job(*case)`` for each case, as soon as it is there or in the order of the cases."""
        how = "generator" if in_order else "generator_unordered"
        with self._workers():
            yield from Parallel(return_as=how)(delayed(with_one_core)(job, case) for case in cases)

    @contextmanager
    def _workers(self) -> Iterator[None]:
        if self.scheduler is None:
            with parallel_config("loky", n_jobs=self.n_jobs, inner_max_num_threads=1):
                yield
            return
        from distributed import Client

        try:
            client = Client(self.scheduler, timeout=CONNECT, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise InvalidOptionError(
                f"the scheduler {self.scheduler} cannot be reached: {error}. Start it (dask scheduler), or "
                "correct --scheduler"
            ) from error
        with client, parallel_config("dask", client=client):
            yield


def with_one_core(job: Callable[..., T], case: tuple[Any, ...]) -> T:
    """Inside a run nothing is spread again, whatever the worker would do by itself."""
    with parallel_config("sequential"), threadpool_limits(1):
        return job(*case)
