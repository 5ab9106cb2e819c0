"""The paper's evaluation as data: one TOML file per table row, a runner, tables and figures."""

from gal.experiments.bench.runner import Run, run_tables
from gal.experiments.bench.specs import TableSpec, read_tables

__all__ = ["Run", "TableSpec", "read_tables", "run_tables"]
