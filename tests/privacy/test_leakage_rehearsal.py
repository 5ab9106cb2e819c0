"""Rehearsals: utility and leakage before a task, on data at hand; and the figures that are validated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

from gal.assembling import grouped
from gal.errors import InvalidInputError, InvalidLabelsError, InvalidOptionError
from gal.evaluate.rehearsal import Rehearsal, pretended_organizations, rehearse
from gal.privacy import Cost, RandomisedResponse
from gal.privacy.leakage import best_guess

PARTS = {"clinic": ["a"], "lab": ["b", "c"]}
pytestmark = pytest.mark.usefixtures("weak_attackers")
QUICK: dict[str, Any] = {"local_models": Ridge(), "rounds": 2, "cross_validation": 0}


def table(n: int = 160) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    return X, (X["a"] + 2 * X["b"] + 0.3 * rng.normal(size=n)).to_numpy()


def small(mechanisms: dict[str, Any], **options: Any) -> list[Rehearsal]:
    X, score = table()
    y = np.where(score > 0, "yes", "no")
    return rehearse(X, y, PARTS, mechanisms=mechanisms, **grouped(QUICK | options))


@pytest.fixture(scope="module")
def compared(weak_attackers: None) -> list[Rehearsal]:
    return small(
        {"none": None, "randomised-response epsilon 1": RandomisedResponse(1.0, ["no", "yes"])}, seeds=(0, 1)
    )


class TestRehearsals:
    def test_utility_beside_leakage(self, compared: list[Rehearsal]) -> None:
        none, protected = compared
        assert none.leak.worst.canaries.value == 1.0
        assert none.utility == none.unprotected == protected.unprotected
        assert none.score > 0.9 > np.mean(none.alone)  # the clinic has the weaker column
        assert len(protected.utility) == protected.leak.runs == 2
        assert protected.leak.bound == best_guess(Cost(1.0), 2)
        assert protected.leak.exceeding() == []
        assert protected.name == "randomised-response epsilon 1"
        assert not none.pretended

    def test_trees_that_memorise_give_their_rows_away_and_constants_do_not(self) -> None:
        X, y = table()
        noise = np.random.default_rng(1).permutation(y)  # nothing to learn but the rows themselves
        told = [
            rehearse(X, noise, PARTS, **grouped(QUICK | {"local_models": model}))[0].predictions
            for model in (DecisionTreeRegressor(random_state=0), DummyRegressor())
        ]
        assert told[0].low > 0.6
        assert told[1].low < 0.55 < 0.75 > told[1].high > 0.45

    def test_own_columns_are_divided_among_pretended_organizations(self) -> None:
        X, score = table()
        (found,) = rehearse(X, (score > 0).astype(int), **grouped(QUICK))
        assert found.pretended
        assert found.organizations == {"you": ["a"], "pretended 1": ["b"], "pretended 2": ["c"]}
        assert found.leak.worst.canaries.value == 1.0
        assert {one.organization for one in found.leak.reconstructions} == {"pretended 1", "pretended 2"}
        with pytest.raises(InvalidInputError, match="at least two columns"):
            pretended_organizations(["a"])

    def test_every_organization_reads_the_columns_of_every_other_one(self) -> None:
        """Also with fewer columns than the others have, and also those of third parties."""
        rng = np.random.default_rng(0)
        X = pd.DataFrame(rng.normal(size=(160, 7)), columns=list("abcdefg"))
        parts = {"clinic": ["a"], "lab": ["b", "c"], "shop": ["d", "e", "f"], "bank": ["g"]}
        options = grouped(QUICK | {"label_holder": "clinic"})
        (found,) = rehearse(X, (X.sum(axis=1) > 0).astype(int).to_numpy(), parts, **options)
        read = {(one.by, one.organization) for one in found.leak.received}
        assert read == {(by, whose) for by in ("lab", "shop", "bank") for whose in parts if whose != by}
        assert {one.organization for one in found.leak.reconstructions} == {"lab", "shop", "bank"}

    def test_bad_input(self) -> None:
        X, score = table()
        with pytest.raises(InvalidInputError, match="at least 10 rows"):
            rehearse(X[:5], score[:5] > 0, PARTS)
        with pytest.raises(InvalidLabelsError, match="1 of 160 labels are infinite or no number"):
            rehearse(X, np.append(score[1:], np.inf), PARTS)
        with pytest.raises(InvalidOptionError, match="label"):
            rehearse(X, score, PARTS, label_holder="unknown")
