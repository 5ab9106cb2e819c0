"""What residuals and answers tell of columns: attacks that succeed where nothing stops them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from gal import GALClassifier, GALRegressor, Organization
from gal.assembling import grouped
from gal.core.losses import BinaryLogLoss
from gal.core.requests import FitRequest, Terms
from gal.core.rows import Rows, all_rows, with_probes
from gal.evaluate.rehearsal import canary_leak
from gal.models.registry import make_model
from gal.privacy import LaplaceLabels, RandomisedResponse
from gal.privacy.leakage import Reconstruction, Transcript, columns_from_replies, columns_from_residuals
from gal.privacy.leakage.own_signs import rehearse_signs
from gal.privacy.leakage.reconstruction import numbers_of
from gal.privacy.noise import SeededNoise

X, y = load_diabetes(return_X_y=True, as_frame=True)
TWO = {"clinic": ["age", "sex", "bmi", "bp"], "lab": ["s1", "s2", "s3", "s4", "s5", "s6"]}
THREE = {"clinic": ["age", "sex", "bmi"], "lab": ["bp", "s1", "s2"], "shop": ["s3", "s4", "s6"]}


def learned(organizations: Any, labels: Any = y, make: Any = GALRegressor, **options: Any) -> Any:
    """The transcript of a learning with linear models, and all views of its rows."""
    transcript = Transcript()
    given: dict[str, Any] = {"local_models": Ridge(), "patience": None, "random_state": 0} | options
    model = make(organizations, **grouped(given)).fit(X, labels, on_message=transcript)
    sent = transcript.sent(model.task_rows_, "clinic")
    known = np.zeros(len(sent.rows), dtype=np.bool_)
    known[np.random.default_rng(1).choice(len(known), 50, replace=False)] = True
    return sent, {name: X[columns].iloc[sent.rows] for name, columns in organizations.items()}, known


def from_residuals(by: str, sent: Any, views: Any, known: Any, **options: Any) -> list[Reconstruction]:
    targets = {name: view for name, view in views.items() if name != by}
    rng = np.random.default_rng(0)
    residual = sent.residual if options.pop("parts", False) else sent.residual[:, :, :1]
    return columns_from_residuals(residual, numbers_of(views[by]), targets, known, rng, by=by, **options)


def from_all_residuals(by: str, sent: Any, views: Any, known: Any, **options: Any) -> list[Reconstruction]:
    """From those of a cross-validation too."""
    return from_residuals(by, sent, views, known, parts=True, **options)


def values(found: Sequence[Reconstruction], of: str) -> list[float]:
    return [one.with_messages.value for one in found if one.organization == of]


class TestAnOrganizationReadsResiduals:
    @pytest.mark.parametrize("noise", [None, 0.1])
    def test_the_label_holders_columns_are_rebuilt_noise_on_labels_or_not(self, noise: float | None) -> None:
        privacy = None if noise is None else LaplaceLabels(noise, 0, 400, source=SeededNoise(0))
        options = {"cross_validation": 0, "rounds": 10}
        found = from_residuals("lab", *learned(TWO, privacy=privacy, **options))
        assert min(values(found, "clinic")) > 0.99
        assert max(one.without.value for one in found) < 0.5
        assert {one.by for one in found} == {"lab"}

    def test_a_third_partys_columns_are_rebuilt(self) -> None:
        found = from_residuals("lab", *learned(THREE, cross_validation=0, rounds=20))
        assert min(values(found, "shop")) > 0.99
        assert min(values(found, "clinic")) > 0.99

    @pytest.mark.parametrize(
        ("attack", "options"), [(from_residuals, {"cross_validation": 0}), (from_all_residuals, {})]
    )
    def test_fresh_noise_on_top_of_noisy_labels_blocks_it(self, attack: Any, options: dict[str, Any]) -> None:
        """At an epsilon at which labels alone let everything through, and at a large one for columns."""
        privacy = LaplaceLabels(0.1, 0, 400, SeededNoise(0), columns_epsilon=10.0, columns_delta=1e-6)
        found = attack("lab", *learned(TWO, privacy=privacy, rounds=10, **options))
        assert max(one.with_messages.value - max(0.0, one.without.value) for one in found) < 0.05

    @pytest.mark.parametrize("epsilon", [None, 1.0])
    def test_few_rounds_tell_more_where_they_are_cross_validated(self, epsilon: float | None) -> None:
        """The residuals of every part move by what other models of the same columns said."""
        privacy = None if epsilon is None else LaplaceLabels(epsilon, 0, 400, source=SeededNoise(0))
        learning = learned(TWO, privacy=privacy, rounds=3)
        task, every = (
            np.mean(values(attack("lab", *learning), "clinic"))
            for attack in (from_residuals, from_all_residuals)
        )
        assert every > task + 0.1

    def test_residuals_of_classes_give_outputs_and_with_them_columns(self) -> None:
        learning = learned(TWO, y > 140, GALClassifier, cross_validation=0, rounds=10)
        found = from_residuals("lab", *learning, loss=BinaryLogLoss())
        assert min(values(found, "clinic")) > 0.95
        straight = from_residuals("lab", *learning)  # who does not look for the outputs sees less
        assert min(values(straight, "clinic")) < 0.9

    def test_outputs_behind_residuals_of_noisy_classes_are_looked_up(self) -> None:
        privacy = RandomisedResponse(4.0, [False, True], source=SeededNoise(0))
        learning = learned(TWO, y > 140, GALClassifier, cross_validation=0, rounds=10, privacy=privacy)
        loss = privacy.public_loss(BinaryLogLoss())
        with_it, without = (
            np.mean(values(from_residuals("lab", *learning, loss=one), "clinic"))
            for one in (loss, BinaryLogLoss())
        )
        assert with_it > 0.6
        assert with_it > without + 0.1

    def test_nothing_is_found_where_the_messages_say_nothing(self) -> None:
        rng = np.random.default_rng(0)
        views = {"clinic": pd.DataFrame({"secret": rng.normal(size=300)})}
        known = rng.random(300) < 0.2
        noise, own = rng.normal(size=(300, 5, 1, 1)), rng.normal(size=(300, 2))
        for loss in (None, BinaryLogLoss()):
            [found] = columns_from_residuals(noise, own, views, known, rng, by="lab", loss=loss)
            assert found.with_messages.value < 0.15


class TestInteractionProbes:
    """A sign may be another organization's two-valued column, in every row: 50 known rows show which."""

    def received(self, signs: Any, n: int = 1000) -> Any:
        """What bob received of a residual and of probes with these signs."""
        roles = with_probes(all_rows(n), np.random.default_rng(0))
        residual = np.random.default_rng(1).normal(size=(n, 2)).astype(np.float32)
        transcript = Transcript()
        transcript([FitRequest(1, residual, ("alice", "bob"))], [{}])
        for round, sign in enumerate(signs, start=2):
            probe = residual * sign[:, None].astype(np.float32)
            transcript([FitRequest(round, probe, ("bob",), target="probe")], [{}])
        return transcript.sent(roles)

    def test_signs_are_read_and_tell_columns(self) -> None:
        rng = np.random.default_rng(0)
        secret, sign = np.where(rng.random(1000) < 0.4, 1.0, -1.0), np.sign(rng.normal(size=1000))
        sent = self.received([sign, secret])
        np.testing.assert_array_equal(sent.signs["bob"], np.column_stack([sign, secret])[sent.rows])
        known = np.zeros(len(sent.rows), dtype=np.bool_)
        known[rng.choice(len(known), 50, replace=False)] = True
        views = {"carol": pd.DataFrame({"secret": secret, "other": rng.normal(size=1000)}).iloc[sent.rows]}
        given: Any = sent.residual, np.empty((len(known), 0)), views, known, rng
        found = columns_from_residuals(*given, by="bob", signs=sent.signs["bob"])
        assert values(found, "carol") == [pytest.approx(1.0, abs=0.01), pytest.approx(0.0, abs=0.2)]
        assert max(values(columns_from_residuals(*given, by="bob"), "carol")) < 0.2

    def test_a_rehearsal_attacks_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gal.learner.task_making.LARGE", 900)  # so many rows are many
        rng = np.random.default_rng(0)
        X = pd.DataFrame(rng.normal(size=(1000, 4)), columns=["age", "town", "usage", "calls"])
        X["town"] = np.where(X["town"] > 0, "Bern", "Basel")
        y = (X["age"] * X["usage"] > 0).astype(int).to_numpy()
        parts = {"bank": ["age", "town"], "telecom": ["usage", "calls"]}
        models = HistGradientBoostingRegressor(max_iter=5)
        options: dict[str, Any] = {"rounds": 2, "stacking": False, "local_models": {"telecom": models}}
        probed, plain = (
            canary_leak(X, y, parts, classes=[0, 1], interactions=probes, **grouped(options))
            for probes in (4, False)
        )
        found = [{one.column: one.with_messages.value for one in each.received} for each in (probed, plain)]
        assert max(found[0].values()) > max(found[1].values()) + 0.15

    def test_a_third_organization_receives_a_two_valued_column(self) -> None:
        """A learning as it is: of the sign vectors that the shop receives, one is the lab's column, in nearly
        every row. By default there is none.
        """
        rng = np.random.default_rng(0)
        X = pd.DataFrame(rng.normal(size=(2400, 4)), columns=["x", "ill", "age", "z"])
        X["ill"] = (X["ill"] > 0).astype(float)
        y = (rng.random(2400) < 1 / (1 + np.exp(-4 * (2 * X["ill"] - 1) * np.sign(X["z"])))).astype(int)
        parts = {"clinic": ["x"], "lab": ["ill", "age"], "shop": ["z"]}
        found = []
        options: Any
        for options in ({"interactions": True}, {}):
            transcript = Transcript()
            model = GALClassifier(parts, local_models=Ridge(), random_state=0, **options)
            model.fit(X, y, on_message=transcript)
            sent = transcript.sent(model.task_rows_, "clinic")
            signs = sent.signs.get("shop", np.zeros((len(sent.rows), 1)))
            rows = ~np.isnan(signs).any(axis=1)
            equal = np.mean((signs[rows] > 0) == (X["ill"].to_numpy()[sent.rows[rows]] > 0)[:, None], axis=0)
            found.append(float(np.maximum(equal, 1 - equal).max()))
        assert found[0] > 0.95
        assert found[1] < 0.6

    def test_an_organization_measures_its_own_before_it_joins(self) -> None:
        """A model of one two-valued column shows it in every row; a model without use of it shows nothing."""
        rng = np.random.default_rng(0)
        view = pd.DataFrame({"ill": rng.random(1000) < 0.3, "age": rng.normal(size=1000)}).astype(float)
        names, whole = ["ill", "age"], Organization("lab", view[["ill"]], Ridge())
        [found] = rehearse_signs(whole, view[["ill"]], ["ill"])
        assert found == {"column": "ill", "value": "above 0", "followed": 1.0, "random": 1.0}
        blind = Organization("lab", rng.normal(size=(1000, 2)), Ridge())
        assert max(one["followed"] for one in rehearse_signs(blind, view, names)) < 0.6
        ill, age = rehearse_signs(Organization("lab", view, Ridge()), view, names)
        assert min(ill["followed"], age["followed"]) > 0.8
        assert ill["random"] <= ill["followed"]


class TestTheLabelHolderReadsAnswers:
    @pytest.mark.parametrize("privacy", [None, RandomisedResponse(0.5, [False, True], source=SeededNoise(0))])
    def test_columns_behind_linear_models_are_rebuilt(self, privacy: Any) -> None:
        sent, views, known = learned(TWO, y > 140, GALClassifier, privacy=privacy, rounds=10)
        others = {"lab": views["lab"]}
        own = numbers_of(views["clinic"])
        found = columns_from_replies(sent.replies, others, own, known, np.random.default_rng(0))
        assert min(values(found, "lab")) > 0.99
        assert {one.by for one in found} == {"the label holder"}

    def test_few_rounds_tell_as_much_as_many_where_they_are_cross_validated(self) -> None:
        """Six columns and two rounds: eight further models of the same columns answer, one for each part."""
        privacy = LaplaceLabels(1.0, 0, 400, source=SeededNoise(0))
        sent, views, known = learned(TWO, privacy=privacy, rounds=2)
        given = {"lab": views["lab"]}, numbers_of(views["clinic"]), known
        task = columns_from_replies(sent.replies, *given, np.random.default_rng(0))
        every = columns_from_replies(sent.replies, *given, np.random.default_rng(0), more=sent.more_replies)
        assert sent.more_replies["lab"].shape == (len(y), 4 * 2, 1)
        assert min(values(every, "lab")) > 0.99
        assert min(values(task, "lab")) < 0.9

    @pytest.mark.parametrize("use", ["linear", "tabular"])
    def test_residuals_that_it_chooses_show_columns_of_unknown_rows(self, use: str) -> None:
        """It sends a column of 200 known rows as their residual; replies about other rows are the column."""
        view = X[TWO["lab"]]
        known, rest = np.split(np.random.default_rng(0).permutation(len(view)), [200])
        known.sort()
        terms = Terms(Rows(len(view), known, known, known[:0]), n_outputs=1, rounds=2, seed=0)
        scores = []
        for round, target in enumerate((y, view["s1"]), start=1):
            residual = ((target - target.mean()) / target.std()).to_numpy(np.float32)[known, None]
            lab = Organization("lab", view, make_model("lab", use, {}))
            reply = lab.fit(FitRequest(round, residual, ("lab",)), terms)[rest, 0]
            scores.append(np.corrcoef(reply, view["s1"].iloc[rest])[0, 1] ** 2)
        assert scores[1] > 0.9
        assert scores[0] < 0.6

    def test_noise_on_answers_blocks_it(self) -> None:
        sent, views, known = learned(TWO, rounds=10)
        rng = np.random.default_rng(0)
        noised = {"lab": sent.replies["lab"] + rng.laplace(scale=1.0, size=sent.replies["lab"].shape)}
        own = numbers_of(views["clinic"])
        found = columns_from_replies(noised, {"lab": views["lab"]}, own, known, rng)
        assert max(one.with_messages.value - max(one.without.value, 0) for one in found) < 0.3
