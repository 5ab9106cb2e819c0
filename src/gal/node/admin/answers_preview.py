"""What a task would tell of this organization's columns, tried on its own rows before it joins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from gal.engine.organization import Organization
from gal.errors import InvalidInputError
from gal.node.agreement.invitations import TaskTerms
from gal.node.config.configuration import NodeConfiguration, read_configuration
from gal.node.config.policy import PolicyLimits
from gal.node.source.data import read_source, view_of_table
from gal.node.source.told_columns import told_model
from gal.node.work.answer_noise import answer_noise, noise_facts
from gal.privacy.leakage.own_columns import (
    LONGEST,
    MOST_ROWS,
    USUALLY_KNOWN,
    ToldByAnswers,
    own_columns_explained,
    pretended,
)

BESIDE = 7
"""Others that are pretended in a sum, at most: fewer hide less, and take less time."""


def preview_answers(
    home: Path, terms: TaskTerms, *, known: int = USUALLY_KNOWN, seed: int = 0
) -> ToldByAnswers:
    """What both label holders find, at these terms and with this node's model, policy and noise.

    With sums, others are pretended whose answers are added: nothing is known here of the real ones. Every
    part of a cross-validation asks for as many fits as the task itself.
    """
    configuration = read_configuration(home)
    organization = _on_some_rows(configuration, seed)
    limits, noise = PolicyLimits(configuration.name, configuration.policy), noise_facts(configuration)
    added = None if noise is None else answer_noise(noise)
    others = min(len(terms.organizations) - 1, BESIDE) if terms.secrecy == "sums" else 0
    return own_columns_explained(
        organization,
        min(terms.rounds * (1 + terms.parts), LONGEST),
        terms.outputs,
        n_known=known,
        fewest_weighted=configuration.policy.min_rows,
        as_sent=lambda values: limits.rounded(values if added is None else added(values)),
        beside=pretended(organization, others, seed),
        seed=seed,
    )


def _on_some_rows(configuration: NodeConfiguration, seed: int) -> Organization:
    """This organization with at most so many rows of its source, drawn by chance."""
    table, chosen = read_source(configuration), configuration.model
    if len(table) < 2 * USUALLY_KNOWN:
        raise InvalidInputError(
            f"organization {configuration.name!r} has {len(table)} rows: what answers tell is measured on "
            f"{2 * USUALLY_KNOWN} or more"
        )
    taken = np.random.default_rng(seed).permutation(len(table))[:MOST_ROWS]
    view = view_of_table(table, taken)
    named = view if isinstance(view, pd.DataFrame) else pd.DataFrame(view, columns=list(table.features))
    model = told_model(configuration, named, table.features, table.dates)
    return Organization(configuration.name, named, model, local_loss=chosen.local_loss)
