"""Runs a cell of any table. What a kind of cell needs is imported when one is run, so that a machine without
pandas can run deep cells, and one without torch the others."""

from __future__ import annotations

import warnings
from dataclasses import replace

from gal.errors import NothingLearnedError
from gal.warnings import InterruptedWarning
from gal_bench.cells import Cell, Outcome, Sources


def run_cell(cell: Cell, sources: Sources) -> Outcome:
    """Learn and score."""
    if cell.deep:
        from gal_bench.runs.deep_cells import run_deep_cell

        outcome = run_deep_cell(cell, sources)
        return outcome if outcome.device else replace(outcome, device=device_here())
    from gal_bench.runs.tabular_cells import run_tabular_cell

    return run_tabular_cell(cell, sources)


def run_to_the_end(cell: Cell, sources: Sources) -> Outcome:
    """The same, but Ctrl-C ends it without an outcome: the finished rounds of
    a run would pass for all of it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", InterruptedWarning)
            return run_cell(cell, sources)
    except (InterruptedWarning, NothingLearnedError) as error:
        raise KeyboardInterrupt from error


def device_here() -> str:
    """What torch computes on here, with its version; empty without torch."""
    try:
        import torch
    except ImportError:
        return ""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return f"{device}, torch {torch.__version__}"
