"""A local model on trial, in a process that it may take down: ``python -m
gal.node.admin.trial HOME VIEW RESULT``.
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gal.core.requests import FitRequest, Terms
from gal.core.rows import Rows
from gal.engine.organization import Organization
from gal.errors import GALError
from gal.node.admin.doctor import Finding
from gal.node.config.configuration import FILE, NodeConfiguration, read_configuration
from gal.node.source.told_columns import told_model
from gal.node.store.views import load_view
from gal.node.work.allowance import ALLOWANCE
from gal.node.work.confinement import confine


def try_model(configuration: NodeConfiguration, view: Any) -> Finding:
    """Whether the local model can be made, and learns from made-up rows like ours."""
    name, chosen = configuration.name, configuration.model
    try:
        model = told_model(configuration, view, (), ())
        organization = Organization(name, view, model, local_loss=chosen.local_loss)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = _fitted(organization, len(view))
    except GALError as error:
        fix = f"correct [model] in {FILE}; tabular takes missing values and text"
        return Finding("model", False, str(error), fix)
    if fitted.shape != (len(view), 1) or not np.isfinite(fitted).all():
        said = f"{chosen.use} answers {len(view)} rows with shape {fitted.shape} or with NaN"
        return Finding("model", False, said, "gal.models.check_local_model(model) tells more")
    return Finding("model", True, f"{chosen.use} can be made and fits {len(view)} made-up rows")


def _fitted(organization: Any, n_rows: int) -> Any:
    """What the local model makes of a made-up residual, asked in the way of a round; shape (n_rows, 1)."""
    residual = np.random.default_rng(0).normal(size=(n_rows, 1)).astype(np.float32)
    everyone = np.arange(n_rows)
    rows = Rows(n=n_rows, fit=everyone, search=everyone, validation=everyone[:0])
    terms = Terms(rows, n_outputs=1, rounds=1, seed=0)
    return organization.fit(FitRequest(1, residual, (organization.name,)), terms)


def main(home: str, view: str, result: str) -> None:
    """Try the model of the node in this home on a view in a file; what was found goes into another."""
    configuration = read_configuration(Path(home))
    rows = load_view(Path(view))
    confine(configuration, also_writable=[Path(result).parent])
    with ALLOWANCE.granted(configuration.policy.fit_cpu_seconds, configuration.policy.fit_memory):
        found = try_model(configuration, rows)
    Path(result).write_text(json.dumps(asdict(found)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
