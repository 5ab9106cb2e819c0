"""The evaluator's question: scores against scikit-learn's, honest intervals, and clear errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import get_scorer, r2_score
from sklearn.pipeline import make_pipeline

from gal.errors import InvalidInputError, InvalidLabelsError, InvalidOptionError
from gal.evaluate import Interval, Verdict, simulate
from gal.evaluate.comparing import verdict_of
from gal.evaluate.metrics import METRICS, metric_for
from gal.evaluate.pooled import NAMES, PooledRegressor
from small_tables import Counter, Raising

pytestmark = pytest.mark.usefixtures("few_trees")


def table(n: int = 100, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    frame["y"] = frame["a"] + 2 * frame["b"] + rng.normal(size=n)
    return frame


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        (["no", "yes"], "auc"),
        (["a", "b", "c"], "accuracy"),
        ([0, 1], "auc"),
        ([0, 1, 2], "accuracy"),
        ([0.1, 0.2, 0.3], "r2"),
    ],
)
def test_metric_follows_the_labels(labels: list[object], name: str) -> None:
    assert metric_for("auto", np.array(labels * 10)).name == name


def test_useful_columns_help_and_useless_ones_do_not() -> None:
    useful = simulate(table(), "y", {"mine": ["a"], "theirs": ["b"]}, folds=3)
    assert useful.verdict is Verdict.GAIN
    assert useful.gain.low > 0
    assert useful.alone.low <= useful.alone.value <= useful.alone.high
    assert useful.log_losses is None
    assert useful.covered is not None
    assert 0.8 < useful.covered <= 1
    assert useful.contributions is not None
    assert useful.contributions.by_organization["theirs"].verdict == "helped"
    useless = simulate(table(), "y", {"mine": ["a", "b"], "theirs": ["c"]}, folds=3)
    assert useless.verdict is Verdict.NO_GAIN
    assert useless.to_json()["verdict"] == "no gain"
    assert useless.covered is None
    assert useless.contributions is not None
    assert useless.contributions.by_organization["theirs"].verdict in {"unclear", "no gain"}


def test_a_share_is_for_gains_that_are_there() -> None:
    found = simulate(table(40), "y", {"mine": ["a"], "theirs": ["b"]}, folds=2, rounds=1)
    sure = replace(
        found,
        verdict=Verdict.GAIN,
        alone=Interval(0.2, 0.1, 0.3),
        alone_tuned=Interval(0.3, 0.2, 0.4),
        assisted=Interval(0.5, 0.4, 0.6),
        pooling_gain=Interval(0.4, 0.3, 0.5),
    )
    assert sure.covered == pytest.approx(0.5), "from the better model alone"
    assert replace(sure, alone_tuned=None).covered == pytest.approx(0.75)
    assert replace(sure, assisted=Interval(0.8, 0.7, 0.9)).covered == 1.0, "the share is at most 1"
    assert replace(sure, pooling_gain=Interval(0.4, -0.1, 0.9)).covered is None
    for one in (Verdict.NO_GAIN, Verdict.UNCLEAR, Verdict.HARM):
        assert replace(sure, verdict=one).covered is None


def test_tuned_models_are_chosen_in_every_split_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, int]] = []
    fit = PooledRegressor.fit

    def watched(self: PooledRegressor, X: pd.DataFrame, y: object) -> PooledRegressor:
        asked.append((self.columns, len(X)))
        return fit(self, X, y)

    monkeypatch.setattr(PooledRegressor, "fit", watched)
    found = simulate(table(90), "y", {"mine": ["a"], "theirs": ["b"]}, folds=3)
    assert found.pooled_model == "linear model"
    assert found.pooled_model in NAMES
    assert asked == 3 * [(["a"], 60), (["a", "b"], 60)], "on the training rows of each split alone"


def test_no_gain_is_claimed_over_a_weak_model_alone() -> None:
    """Organizations add to what a bad local model reaches; a tuned model alone reaches more."""
    weak = make_pipeline(PCA(1), Ridge(300))
    found = simulate(
        table(), "y", {"mine": ["a", "b"], "theirs": ["c"]}, folds=2, rounds=2, local_models=weak
    )
    assert found.alone_tuned is not None
    assert found.alone_tuned.value > found.assisted.value
    assert found.alone_tuned_model == "linear model"
    sure = Interval(0.1, 0.05, 0.15)
    assert verdict_of(sure, sure, beats_tuned=False) is Verdict.UNCLEAR
    between = Interval(found.assisted.value + 0.05, 0.0, 1.0)
    told = replace(found, verdict=Verdict.GAIN, pooling_gain=sure, alone_tuned=between)
    assert told.covered is not None
    assert told.covered < 0, "the share begins at the better model alone"


@pytest.mark.parametrize("at", [1, 3])
def test_an_interruption_ends_everything(at: int) -> None:
    local = Raising(KeyboardInterrupt(), Counter(at))
    with pytest.raises(KeyboardInterrupt):
        simulate(table(40), "y", {"mine": ["a"], "theirs": ["b"]}, folds=2, local_models=local)


def test_nonsense_is_named() -> None:
    data = table()
    with pytest.raises(InvalidInputError, match="no column 'z' to predict"):
        simulate(data, "z", {"mine": ["a"]})
    with pytest.raises(InvalidInputError, match="organization 'mine': no column 'q'"):
        simulate(data, "y", {"mine": ["q"]})
    with pytest.raises(InvalidInputError, match="no organizations"):
        simulate(data, "y", {})
    with pytest.raises(InvalidOptionError, match="these labels are numbers"):
        simulate(data, "y", {"mine": ["a"]}, metric="auc")
    data.loc[3, "y"] = np.nan
    with pytest.raises(InvalidLabelsError, match=r"1 of 100 .* 'y' are missing, the first in row 4 "):
        simulate(data, "y", {"mine": ["a"]})
    texts = data["y"].fillna(0).map("{:.5f}".format).tolist()
    with pytest.raises(InvalidLabelsError, match="row 8 below the header, which is 'none'"):
        simulate(data.assign(y=[*texts[:7], "none", *texts[8:]]), "y", {"mine": ["a"]})
    with pytest.raises(InvalidLabelsError, match="correct 'oops', which is none"):
        simulate(data.assign(y=[*texts[:7], "oops", *texts[8:]]), "y", {"mine": ["a"]})


def test_log_loss_stands_beside_the_score_of_classes() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": (X.sum(axis=1) > 0).astype(int)})
    found = simulate(table, "y", {"one": ["a"], "two": ["b"]}, folds=2)
    assert found.log_losses is not None
    assert found.log_losses["assisted"] < found.log_losses["alone"] < np.log(2)
    asked = simulate(table, "y", {"one": ["a"], "two": ["b"]}, folds=2, metric="average_precision")
    assert asked.metric == "average_precision"
    assert asked.alone.value < asked.assisted.value <= 1


@pytest.mark.parametrize("name", ["average_precision", "neg_log_loss", "accuracy", "auc"])
def test_scores_of_probabilities_are_scikit_learns(name: str) -> None:
    frame = table()
    truth, X = (frame["y"] > 0).astype(int).to_numpy(), frame[list("abcd")].to_numpy()
    model = LogisticRegression().fit(X, truth)
    found = METRICS[name].score(truth, METRICS[name].inputs(model.predict_proba(X)))
    theirs = get_scorer({"auc": "roc_auc"}.get(name, name))
    assert found == pytest.approx(theirs(model, X, truth))


@pytest.mark.parametrize(
    ("name", "labels", "said"),
    [
        ("avrage_precision", [0, 1], "Did you mean .average_precision"),
        ("auc", ["a", "b", "c"], "auc is for two classes, these labels have 3"),
        ("r2", ["a", "b"], "is for numbers, these labels are text"),
    ],
)
def test_scorers_that_do_not_suit(name: str, labels: list[object], said: str) -> None:
    with pytest.raises(InvalidOptionError, match=said):
        metric_for(name, np.array(labels * 5))


def test_rare_classes_lead_into_no_dead_end() -> None:
    frame = table(40)
    frame["y"] = ["common"] * 37 + ["rare"] * 3
    steps: list[str] = []
    with pytest.raises(InvalidInputError, match="use --folds 3, or leave it out"):
        simulate(frame, "y", {"one": ["a"]}, folds=5)
    simulate(frame, "y", {"one": ["a"], "two": ["b"]}, rounds=2, on_step=lambda step, _: steps.append(step))
    assert "split 3 of 3, pooled" in steps, "as many as the rarest class has rows"
    assert "split 1 of 3, assisted, round 1 of at most 2" in steps
    frame["y"] = ["common"] * 38 + ["rare"] * 2  # of which a split learns one: it cannot validate
    simulate(frame, "y", {"one": ["a"], "two": ["b"]}, rounds=1)
    frame["y"] = ["common"] * 39 + ["once"]
    with pytest.raises(InvalidLabelsError, match=r"'once' of 'y' occurs in one row.*merge rare classes\.$"):
        simulate(frame, "y", {"one": ["a"]}, folds=1)
    with pytest.raises(InvalidLabelsError, match="Are these numbers"):
        simulate(frame.assign(y=[1] * 38 + [2, 3]), "y", {"one": ["a"]})
    with pytest.raises(InvalidInputError, match="the table has 2 rows: comparing models needs more"):
        simulate(frame.head(2).assign(y=[1.5, 2.5]), "y", {"one": ["a"]}, metric="r2")
    with pytest.raises(InvalidInputError, match="the table has 1 row: comparing models needs more"):
        simulate(frame.head(1).assign(y=[1.5]), "y", {"one": ["a"]}, metric="r2")
    frame["y"] = "ok"
    with pytest.raises(InvalidLabelsError, match="all 40 values of 'y' are 'ok'"):
        simulate(frame, "y", {"one": ["a"]})


@pytest.mark.slow
@pytest.mark.parametrize("classes", [False, True])
def test_pure_noise_is_hardly_ever_a_gain(classes: bool) -> None:
    """At most one of twenty made-up tables."""
    claimed = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        frame = pd.DataFrame(rng.normal(size=(150, 6)), columns=list("abcdef"))
        y = frame["a"] * (seed % 3) + frame["b"] ** 2 + rng.normal(size=150)
        frame["y"] = np.where(y > y.median(), "yes", "no") if classes else y
        found = simulate(frame, "y", {"mine": ["a", "b"], "one": ["c", "d"], "two": ["e", "f"]}, seed=seed)
        claimed += found.verdict is Verdict.GAIN
        assert found.contributions is not None
        if found.verdict is not Verdict.GAIN:
            partners = found.contributions.by_organization.values()
            assert all(one.verdict != "helped" for one in partners)
            assert found.covered is None
    assert claimed <= 1


def test_scores_of_numbers_are_scikit_learns() -> None:
    number, near = np.random.default_rng(0).normal(size=(2, 50))
    assert METRICS["r2"].score(number, near) == pytest.approx(r2_score(number, near))
    assert METRICS["neg_mae"].score(number, near) == pytest.approx(-np.abs(number - near).mean())
