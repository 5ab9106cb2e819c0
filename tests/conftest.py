"""Shared by all tests: small thread pools, time that stretches, and no silent skips
where everything is installed.
"""

from __future__ import annotations

import gc
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # trees on tiny data crawl when cores are oversubscribed
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # LightGBM has threads all the same

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

from forked import WHERE, forking, nursery
from gal.errors import MissingExtraError
from gal.extras import EXTRAS, extra_of, is_installed
from patience import PATIENCE, patient

if TYPE_CHECKING:
    from loopback import Organization

ALLOWED_SKIPS = (
    "no GPU",
    "credentialed data",
    "CIFAR10 is not in the data folder",
    "started by make test-browser only",
    "started by make test-database only",
    "started by make test-nvflare only",
    "/gal/node/runtime/nvflare/",  # cannot be imported without NVFlare, which the extra all does not bring
)
gc.disable()  # until all tests are collected: they are many, and none is garbage
os.environ.setdefault("PYTEST_TIMEOUT", str(patient(300)))  # of a test that names no time of its own

settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")  # how long an example takes says how busy the machine is

collect_ignore = ["support", "doc_examples.py"]  # no tests: doctests would import them


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    with threadpool_limits(1):
        yield


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """Models without a seed draw the same in every run, whatever ran before."""
    import numpy as np  # here: the process that hands out tests needs none

    np.random.seed(0)  # noqa: NPY002 -- the generator that scikit-learn takes where none is named


STARTING = ("gal.node.worker.worker", "gal_bench.demo.processes")
"""Modules that start processes of Python; where a test knows of their room, they are imported."""


@pytest.fixture(autouse=True, scope="module")
def processes_are_forked() -> Iterator[None]:
    """What nodes in tests start comes from the fork server; a module may say otherwise with this name."""
    there = all(map(is_installed, EXTRAS["node"]))
    known = [name for name in STARTING if there and ".".join(name.split(".")[:2]) in sys.modules]
    with forking(*map(import_module, known)):
        yield


@pytest.fixture(autouse=True, scope="module")
def one_duckdb() -> Iterator[None]:
    """Files are read by cursors of one DuckDB: each database takes 15 ms, and tests make hundreds."""
    reading = sys.modules.get("gal.node.source.source_reading")
    if reading is None:
        yield
        return
    with reading.connected() as database, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "connected", database.cursor)
        yield


@pytest.fixture
def bank(tmp_path: Path) -> Organization:
    """A label holder with keys of its own; no node runs."""
    from loopback import (
        make_organization,  # here: it needs the extra node, without which tests skip one by one
    )

    return make_organization(tmp_path, "bank")


@pytest.fixture
def hospital(tmp_path: Path, bank: Organization) -> Organization:
    """An organization whose card the bank has."""
    from loopback import make_organization

    hospital = make_organization(tmp_path, "hospital")
    bank.knows(hospital)
    return hospital


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder with the authors' splits and figures."""
    if "GAL_REFERENCE" not in os.environ:
        pytest.skip("GAL_REFERENCE is not set: it names the folder with the authors' splits")
    return Path(os.environ["GAL_REFERENCE"])


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the data sets."""
    if "GAL_DATA" not in os.environ:
        pytest.skip("GAL_DATA is not set: it names the folder with the data sets")
    return Path(os.environ["GAL_DATA"])


@pytest.fixture(scope="module")
def few_trees() -> Iterator[None]:
    """One cross-validation, and ten trees in pooled models: for tests that look at neither's quality."""
    pooled = import_module("gal.evaluate.pooled")  # not the function of that name

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooled, "MOST", 10)
        patch.setattr(pooled, "FOLDS", 2)
        patch.setattr(pooled, "BOOSTING", pooled.BOOSTING[:1])
        patch.setattr(pooled, "STRENGTHS", pooled.STRENGTHS[2:3])
        patch.setattr("gal.evaluate.comparing.REPEATS", {})
        yield


@pytest.fixture(scope="module")
def small_forests() -> Iterator[None]:
    """Few trees in stackers, where not how good they are is looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gal.learner.stacking.TREES", 10)
        patch.setattr("gal.learner.stacking.MORE_TREES", 10)
        yield


@pytest.fixture(scope="module")
def coarse_pictures() -> Iterator[None]:
    """Pictures of few pixels, where no test looks at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gal_bench.pictures.DPI", 30)
        yield


@pytest.fixture
def few_penalties(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two penalties and two folds for a private refit, where not how much it repairs is looked at."""
    monkeypatch.setattr("gal.privacy.refit.PENALTIES", (10.0, 1.0))
    monkeypatch.setattr("gal.privacy.refit.FOLDS", 2)


@pytest.fixture(scope="module")
def weak_attackers() -> Iterator[None]:
    """Few trees, folds and readings for attackers, where not how good these are is looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gal.privacy.leakage.reconstruction.FOLDS", 2)
        patch.setattr("gal.privacy.leakage.reconstruction.ROUNDING", (1e-4,))
        yield


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimizers of torch import its compiler, four seconds, only to be left alone by it."""
    if not is_installed("torch"):
        return
    stand_in = ModuleType("torch._dynamo")
    vars(stand_in).update(disable=lambda function, *_, **__: function, graph_break=lambda: None)
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    monkeypatch.setitem(vars(import_module("torch")), "_dynamo", stand_in)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips",
        action="store_true",
        help=f"fail on every skip whose reason is not one of: {', '.join(ALLOWED_SKIPS)}",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test's own time stretches like all others."""
    for item in items:
        mark = item.get_closest_marker("timeout")
        if mark is not None and PATIENCE != 1:
            item.add_marker(pytest.mark.timeout(patient(mark.args[0])), append=False)


def pytest_collection_finish() -> None:
    """From here on garbage is looked for again, among what tests make only, and not every moment."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    report = yield
    if report.failed and call.excinfo is not None and (reason := lacking(call.excinfo.value)) is not None:
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"Skipped: {reason}")
    if report.skipped and item.config.getoption("--no-skips") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(allowed in reason for allowed in ALLOWED_SKIPS):
            report.outcome = "failed"
            report.longrepr = f"skipped although everything is installed: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):  # type: ignore[no-untyped-def]
    """A module that needs an extra which is not installed is skipped, and says which."""
    report = yield
    error = report.call.excinfo.value.__cause__ if report.failed and report.call.excinfo else None
    if (reason := lacking(error)) is not None:
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: {reason}")
    return report


def lacking(error: BaseException | None) -> str | None:
    """Which extra something failed for, that is really not here; None where it is another failure."""
    extra = getattr(error, "extra", None) if isinstance(error, MissingExtraError) else None
    if isinstance(error, ModuleNotFoundError):
        extra = extra_of(error.name or "")
    if extra is not None and extra in EXTRAS and not all(map(is_installed, EXTRAS[extra])):
        return f"needs the extra {extra!r}, which is not installed"
    # Where a test replaces something by its name, pytest says in words of its own that it cannot be imported.
    return lacking(error.__cause__) if isinstance(error, ImportError) else None


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A module that skips itself while it is collected is caught by its own reason, too."""
    if report.skipped and _no_skips:
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(allowed in reason for allowed in ALLOWED_SKIPS):
            report.outcome = "failed"
            report.longrepr = f"skipped although everything is installed: {reason}"


_no_skips = False


def pytest_configure(config: pytest.Config) -> None:
    global _no_skips
    _no_skips = bool(config.getoption("--no-skips"))
    hands_out = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if hands_out and all(map(is_installed, EXTRAS["node"])):
        os.environ[WHERE] = nursery()  # one for all workers: each of their own imports the same
