"""What should be looked at in a table first: each kind is found, and a sound table has nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gal.evaluate.profile import Remark, profile_of

N = 60


def sound() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, N),
            "income": rng.normal(size=N),
            "city": rng.choice(["A", "B", "C"], N),
            "y": np.arange(N) % 2,
        }
    )


def found(**columns: Any) -> dict[str, Remark]:
    table = sound().assign(**columns)
    used = [name for name in table.columns if name != "y"]
    return {one.kind: one for one in profile_of(table, "y", {"bank": used})}


def test_a_sound_table_has_nothing_to_look_at() -> None:
    assert found() == {}


def test_columns_that_say_nothing() -> None:
    kinds = found(one=1, none=np.nan, nothing=None, mostly=[1.0] * (N - 1) + [np.nan])
    assert kinds["constant"].columns == ("one",)
    assert kinds["empty"].columns == ("none", "nothing")


def test_columns_that_name_rows() -> None:
    keys = [f"k{place}" for place in range(N)]
    kinds = found(key=keys, customer_id=np.arange(N) * 7 + 3, row=range(N), price=np.arange(N) * 3 + 5)
    assert kinds["id-like"].columns == ("key", "customer_id", "row")


def test_cases_that_are_there_twice() -> None:
    ids = [*range(N - 2), 0, 1]
    assert "4 rows share their case_id" in found(case_id=ids)["duplicated ids"].words
    table = sound()
    again = pd.concat([table, table.iloc[:3]], ignore_index=True)
    (one,) = profile_of(again, "y", {"bank": ["age", "income", "city"]})
    assert (one.kind, one.words[:6]) == ("duplicated rows", "3 rows")


def test_classes_with_few_rows() -> None:
    assert (
        "rare (3)" in found(y=["a", "b"] * (N // 2 - 2) + ["a", "rare", "rare", "rare"])["rare classes"].words
    )
    assert found(y=np.linspace(0.1, 9.7, N)) == {}  # numbers have no classes


def test_numbers_that_are_learned_as_numbers_have_no_rare_class() -> None:
    frame = pd.DataFrame({"a": [0.1, 0.7, 0.3, 0.2, 0.9], "y": [151, 75, 141, 206, 135]})
    assert [one.kind for one in profile_of(frame, "y", {"bank": ["a"]})] == ["rare classes"]
    assert profile_of(frame, "y", {"bank": ["a"]}, classes=False) == []
    frame = pd.DataFrame({"a": [2, 1] * 20, "y": [float(one) / 7 for one in range(40)]})
    assert profile_of(frame, "y", {"bank": ["a"]}) == []


def test_a_column_that_is_the_target_under_another_name() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    table = pd.DataFrame({"a": rng.normal(size=200), "copy": [f"${one:.6f}" for one in y], "y": y.round(6)})
    (found,) = profile_of(table, "y", {"bank": ["a", "copy"]})
    assert (found.kind, found.columns) == ("tells the target", ("copy",))
    table = pd.DataFrame(
        {"a": rng.normal(size=200), "left": ["gone" if one > 0 else None for one in y], "y": y > 0}
    )
    assert profile_of(table, "y", {"bank": ["a", "left"]}) == []
    table["left"] = np.where(y > 0, "gone", "here")
    assert [one.kind for one in profile_of(table, "y", {"bank": ["a", "left"]})] == ["tells the target"]


def test_classes_that_are_written_in_several_ways() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=120), "y": ["Yes", "yes ", "No"] * 40})
    (found,) = profile_of(table, "y", {"bank": ["a"]})
    assert found.kind == "classes written in several ways"
    assert "'Yes', 'yes '" in found.words


def test_amounts_with_the_name_of_an_id_are_no_duplicated_ids() -> None:
    rng = np.random.default_rng(0)
    whole = pd.DataFrame({"num": [*range(180), *range(20)], "y": rng.normal(size=200)})
    for divisor, found in ((1, ["duplicated ids"]), (7.0, [])):
        table = whole.assign(num=whole["num"] / divisor)
        kinds = [one.kind for one in profile_of(table, "y", {"bank": ["num"]})]
        assert [one for one in kinds if one == "duplicated ids"] == found
