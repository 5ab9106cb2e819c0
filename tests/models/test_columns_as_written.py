"""Columns as people write them: each form is read, and a model on it is as good as on the clean numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from gal import GALRegressor
from gal.errors import InvalidColumnsError, InvalidInputError
from gal.models import TabularModel
from gal.models.reading.column_reading import column_readings, shown
from gal.models.reading.converting import parts_of, reading_of
from gal.models.reading.written_numbers import NumberForm, numbers_in

Floats = NDArray[np.float64]
Written = Callable[[Floats, np.random.Generator], list[str]]


def swapped(text: str) -> str:
    """Decimal commas, and points between thousands."""
    return text.translate(str.maketrans(",.", ".,"))


def each(form: str) -> Written:
    return lambda values, _: [form.format(value) for value in values]


def some(form: str, *others: str, share: float = 0.1) -> Written:
    """Most values in this form, and other words here and there."""

    def write(values: Floats, rng: np.random.Generator) -> list[str]:
        return [str(rng.choice(others)) if rng.random() < share else form.format(value) for value in values]

    return write


def either(*forms: Callable[[float], str]) -> Written:
    return lambda values, rng: [forms[rng.integers(len(forms))](value) for value in values]


def in_francs(value: float) -> str:
    return f"CHF {value:,.2f}".replace(",", "'")


def with_narrow_spaces(value: float) -> str:
    return f"{value:,.1f}".replace(",", "\u202f").replace(".", ",")


def shortened(value: float) -> str:
    return f"{value / 1e3:.2f}k" if value < 40_000 else f"{value / 1e6:.5f}M"


def in_brackets(value: float) -> str:
    return f"({50_000 - value:,.0f})" if value < 50_000 else f"{value - 50_000:,.0f}"


def brackets_behind_dollars(value: float) -> str:
    return f"$({50_000 - value:,.2f})" if value < 50_000 else f"${value - 50_000:,.2f}"


def credit_or_debit(value: float) -> str:
    return f"{abs(value - 50_000):,.2f} {'CR' if value < 50_000 else 'DR'}"


def minus_behind(value: float) -> str:
    return f"{50_000 - value:.0f}-" if value < 50_000 else f"{value - 50_000:.0f}"


def band(value: float) -> str:
    low = int(value // 5000) * 5
    return "<10" if value < 10_000 else "90+" if value >= 90_000 else f"{low}-{low + 4}"


def interval(value: float) -> str:
    low = int(value // 5000) * 5
    return f"[{low}, {low + 5})"


NUMBERS: dict[str, Written] = {
    "dollars": each("${:,.2f}"),
    "a currency behind": each("{:,.2f} USD"),
    "euros": either(lambda one: f"€ {swapped(f'{one:,.2f}')}"),
    "whole euros": either(lambda one: f"€ {swapped(f'{one:,.0f}')}"),
    "thousands without decimals": each("{:,.0f}"),
    "francs": either(in_francs),
    "narrow spaces": either(with_narrow_spaces),
    "quotes of a spreadsheet": either(lambda one: f'="{one:.0f}"', lambda one: f"'{one:.0f}"),
    "both conventions": either(lambda one: f"{one:,.2f}", lambda one: swapped(f"{one:,.2f}")),
    "percent": either(lambda one: f"{one / 1000:.2f}%"),
    "percent of some": either(lambda one: f"{one / 1000:.2f} %", lambda one: f"{one / 1000:.2f}"),
    "thousands and millions": either(shortened),
    "kilograms": either(lambda one: f"{one / 1000:.2f} kg"),
    "kilograms of some": either(lambda one: f"{one / 1000:.2f}Kg", lambda one: f"{one / 1000:.2f}"),
    "in brackets where negative": either(in_brackets),
    "in brackets behind a currency": either(brackets_behind_dollars),
    "credit and debit": either(credit_or_debit),
    "minus behind": either(minus_behind),
    "with missing values": some("{:,.2f}", "N/A", "-", "?", "unknown", "none", ""),
    "limits": either(lambda one: "<20000" if one < 20_000 else f"{one:.0f}"),
    "years": either(lambda one: f"{one / 1000:.0f} years"),
    "hours and minutes": either(lambda one: f"{int(one) // 600}h {int(one) // 10 % 60}m"),
    "hours with minutes behind": either(lambda one: f"{int(one) // 600} h {int(one) // 10 % 60:02}"),
    "horas": either(lambda one: f"{int(one) // 600} horas {int(one) // 10 % 60} minutos"),
    "the first of several numbers": either(lambda one: f"{one / 1000:.1f} / {one % 7:.1f}"),
    "clocks beyond a day": either(lambda one: f"{int(one) // 600}:{int(one) // 10 % 60:02}:00"),
    "minutes or hours": either(lambda one: f"{one / 10:.0f} min", lambda one: f"{one / 600:.3f} hours"),
    "bands": either(band),
    "intervals": either(interval),
}


def of_days(form: str) -> Written:
    """A number of 0 to 100,000 as a day of about eleven years."""
    first = pd.Timestamp("2013-01-01")
    return lambda values, _: list((first + pd.to_timedelta(values // 25, unit="D")).strftime(form))


DATES = {
    name: of_days(form)
    for name, form in {
        "iso": "%Y-%m-%d",
        "german": "%d.%m.%Y",
        "american, short": "%m/%d/%y",
        "in words": "%B %d, %Y",
        "SAS": "%d%b%Y",
        "UTC": "%Y-%m-%dT%H:%M:%SZ",
        "a time zone": "%Y-%m-%d %H:%M:%S+02:00",
        "halves of a day": "%m/%d/%Y %I:%M %p",
        "months": "%Y-%m",
        "a region": "%Y-%m-%d %H:%M:%S Europe/Berlin",
        "Unix": "%a %b %d %H:%M:%S %Y",
        "Uhr": "%d.%m.%Y %H:%M Uhr",
        "French": "%d/%m/%Y à %Hh%M",
        "points": "%d.%m.%Y %H.%M",
        "Chinese": "%Y年%m月%d日",
        "compact": "%Y%m%dT%H%M%S",
    }.items()
}
ALL = NUMBERS | DATES


def columns_of(write: Written, n: int = 1200, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, Floats]:
    """A clean column, the same as people write it, and what follows from it."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0, 100_000, n)
    clean, messy = pd.DataFrame({"it": values}), pd.DataFrame({"it": write(values, rng)})
    return clean, messy, np.asarray(np.sin(values / 25_000) + values / 50_000 + rng.normal(0, 0.3, n))


@pytest.mark.parametrize("form", ALL)
def test_a_model_on_it_is_as_good_as_on_clean_numbers(form: str) -> None:
    clean, messy, y = columns_of(ALL[form])
    if form == "limits":
        clean = clean.clip(lower=20_000)
    if form == "with missing values":
        clean = clean.mask(messy["it"].isin(["N/A", "-", "?", "unknown", "none", ""]))
    scores = [
        r2_score(y[600:], TabularModel(random_state=0).fit(one[:600], y[:600]).predict(one[600:]))
        for one in (clean, messy)
    ]
    assert scores[0] > 0.5
    assert scores[1] > scores[0] - 0.03


@pytest.mark.parametrize("form", ALL)
def test_a_row_that_comes_later_is_read_in_the_same_way(form: str) -> None:
    _, messy, y = columns_of(ALL[form], n=150)
    model = TabularModel().fit(messy, y)
    together = model.predict(messy)
    alone = [model.predict(messy.iloc[[row]])[0] for row in range(2)]
    np.testing.assert_allclose(alone, together[:2], rtol=1e-9)
    strange = [None, "", "soon", "1.2.3.4", "$", "2024-99-99", "\x1b[31m", "١٢", "9" * 400, "("]
    odd = pd.DataFrame({"it": strange})
    assert np.isfinite(model.predict(odd)).all()
    assert np.isfinite(model.predict(pd.DataFrame({"it": [1.5, np.nan, np.inf]}))).all()
    assert np.isfinite(
        model.predict(pd.DataFrame({"it": pd.Series(["2020-01-01", None]).astype("datetime64[ns]")}))
    ).all()


def mixed(n: int, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, Floats]:
    """A customer table as a bank exports it, and the same as a data scientist would clean it."""
    rng = np.random.default_rng(seed)
    income, used = rng.lognormal(10.5, 0.5, n), rng.uniform(0, 100, n)
    since = pd.Timestamp("2016-01-01") + pd.to_timedelta(rng.integers(0, 2500, n), unit="D")
    card, age, stay = rng.random(n) < 0.5, rng.integers(18, 90, n), rng.integers(10, 900, n)
    clean = pd.DataFrame(
        {
            **{"income": np.log(income), "used": used, "since": (since - pd.Timestamp(0)).days},
            **{"card": card * 1.0, "age": age, "stay": stay},
        }
    )
    messy = pd.DataFrame(
        {
            "income": [f"${one:,.2f}" if rng.random() > 0.02 else "unknown" for one in income],
            "used": [f"{one:.1f}%".replace(".", ",") for one in used],
            "since": since.strftime("%d.%m.%Y"),
            "card": np.where(card, np.where(rng.random(n) < 0.5, "Yes", "yes "), "No"),
            "age": [f"{one // 10 * 10}-{one // 10 * 10 + 9}" for one in age],
            "stay": [f"{one // 60}h {one % 60}m" for one in stay],
            "customer": [f"C-{one:06}" for one in rng.permutation(n)],
            "status": "active",
        }
    )
    scaled = (clean - clean.mean()) / clean.std()
    y = scaled.sum(axis=1) + 0.5 * scaled["income"] * scaled["card"] + rng.normal(0, 1, n)
    return clean, messy, np.asarray(y)


def test_assistance_on_a_messy_table_is_as_good_as_on_the_clean_one() -> None:
    clean, messy, y = mixed(1600)
    scores = []
    for table in (clean, messy):
        own = ["income", "used", "since"]
        parts = {"bank": own, "club": [name for name in table.columns if name not in own]}
        model = GALRegressor(parts, random_state=0).fit(table[:800], y[:800])
        scores.append(r2_score(y[800:], model.predict(table[800:])))
    assert scores[0] > 0.75
    assert scores[1] > scores[0] - 0.03


@pytest.mark.parametrize("signal", ["weekday", "month", "hour"])
def test_effects_of_the_calendar_are_found(signal: str) -> None:
    rng = np.random.default_rng(0)
    when = pd.Timestamp("2018-01-01") + pd.to_timedelta(rng.integers(0, 1500 * 86400, 1200), unit="s")
    truth = {"weekday": when.day_of_week == 2, "month": when.month == 12, "hour": when.hour >= 18}[signal]
    y = truth * 3.0 + rng.normal(0, 0.5, 1200)
    for column in (pd.Series(when), pd.Series(when.strftime("%d/%m/%Y %H:%M"))):
        table = pd.DataFrame({"when": column})
        model = TabularModel(random_state=0).fit(table[:600], y[:600])
        assert r2_score(y[600:], model.predict(table[600:])) > 0.5


def test_words_of_free_text_are_found() -> None:
    rng = np.random.default_rng(0)
    words = ["account", "branch", "card", "delay", "fee", "loan", "online", "transfer"]
    texts = [" ".join([*rng.permutation(words)[:5], f"ref{row}"]) for row in range(1000)]
    y = np.array([2.0 * ("delay" in one) - ("fee" in one) for one in texts]) + rng.normal(0, 0.3, 1000)
    table = pd.DataFrame({"note": texts})
    (reading,) = column_readings(table)
    assert reading.kind == "text"
    model = GALRegressor({"all": ["note"]}, random_state=0).fit(table[:500], y[:500])
    assert r2_score(y[500:], model.predict(table[500:])) > 0.9


def test_words_beside_numbers_and_units_are_kept_as_categories() -> None:
    rng = np.random.default_rng(0)
    paid, amount = rng.random(1000) < 0.3, rng.uniform(0, 10, 1000)
    y = np.where(paid, 20.0, amount) + rng.normal(0, 0.3, 1000)
    table = pd.DataFrame({"amount": np.where(paid, "self-pay", [f"{one:.2f}" for one in amount])})
    model = TabularModel(max_iter=0).fit(table[:500], y[:500])
    assert r2_score(y[500:], model.predict(table[500:])) > 0.95


KINDS: dict[str, tuple[list[Any], str]] = {
    "postal codes": (["01067", "80331", "10115", "20095"], "category"),
    "diagnoses": (["E11.9", "I10", "J45.909"], "category"),
    "diagnoses of before": (["250.00", "401.9", "V27.0", "E812.0"], "category"),
    "versions": (["1.2.3", "2.0.1", "1.10.0"], "category"),
    "flats": (["1A", "2B", "3C", "4D"], "category"),
    "ordinal words": (["low", "medium", "high"], "category"),
    "bands": (["<18", "18-29", "30-39", "65+"], "category"),
    "ages": (["45 years", "1 year", "33 yrs"], "number"),
    "yes and no": (["Yes", "no ", "YES", "n"], "boolean"),
    "ja und nein": (["ja", "Nein", "J"], "boolean"),
    "true and false, and missing ones": (["TRUE", "FALSE", "NULL"], "boolean"),
    "one and zero as text": (["1", "0", "N/A"], "boolean"),
    "clocks": (["00:00", "13:45", "9:05"], "time"),
    "a blood pressure": (["120/80", "135/85", "110 / 70"], "category"),
    "dates, some unreadable": (["31.12.2024", "01.01.2025"] * 15 + ["soon"], "date"),
    "years": (["1999", "2004", "2010"], "number"),
    "one value": (["x"], "constant"),
    "none": (["-", "N/A"], "empty"),
}


@pytest.mark.parametrize("name", KINDS)
def test_columns_are_of_the_kind_that_people_mean(name: str) -> None:
    values, kind = KINDS[name]
    column = (values * 40)[: max(60, 40 * (len(values) > 1))]
    (reading,) = column_readings(pd.DataFrame({"it": column}))
    assert reading.kind == kind


def test_columns_that_name_rows_are_left_out_and_reported() -> None:
    n = 200
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "key": [f"K{one:05}" for one in range(n)],
            "mail": [f"a{one}@example.org" for one in range(n)],
            "phone": [f"+41 79 {one:03} 00 {one % 90 + 10}" for one in range(n)],
            "customer_id": rng.permutation(n) * 7 + 100_000,
            "Patient ID": [f"{one % 180:06}" for one in range(n)],
            "case_no": np.arange(n) % 180 + 7,
            "row": range(n),
            "measured": rng.normal(size=n),
            "income": [f"${one:,.2f}" for one in rng.lognormal(10, 1, n)],
            "price": rng.permutation(n) * 3 + 5,
        }
    )
    found = {one.name: one for one in column_readings(table)}
    ids = {name for name, one in found.items() if one.kind == "id"}
    assert ids == {"key", "mail", "phone", "customer_id", "Patient ID", "case_no", "row"}
    assert found["key"].done == "left out: it names rows"
    assert found["income"].kind == "number"
    y = np.asarray(table["measured"])
    alone = TabularModel().fit(table[["measured", "key"]], y).predict(table[["measured", "key"]])
    np.testing.assert_allclose(alone, TabularModel().fit(table[["measured"]], y).predict(table[["measured"]]))


def test_a_wrong_guess_is_overruled() -> None:
    days = [20_240_131, 20_240_201, 20_231_231]
    table = pd.DataFrame({"zip": ["10115", "80331", "20095"] * 20, "when": days * 20})
    assert [one.kind for one in column_readings(table[["when"]])] == ["number"]
    reason = {"zip": "number", "when": "date"}
    zips, when = column_readings(table, reason)
    assert (zips.kind, zips.declared, when.kind) == ("number", True, "date")
    assert when.reading is not None
    assert parts_of(table["when"], when.reading)[0][0] == (pd.Timestamp("2024-01-31") - pd.Timestamp(0)).days
    y = np.arange(60.0) % 3
    as_category = TabularModel(max_iter=0, kinds={"zip": "category"}).fit(table[["zip"]], y)
    assert as_category.encoder_.is_category_ == [True]
    for kinds, error, words in (
        ({"zip": "nubmer"}, InvalidInputError, "Did you mean 'number'"),
        ({"zap": "number"}, InvalidColumnsError, "no column is called 'zap'"),
        ({"zip": "duration"}, InvalidColumnsError, "none of its values is one, such as '10115'"),
    ):
        with pytest.raises(error, match=words):
            column_readings(table, kinds)


def test_digits_that_are_text_on_purpose_may_be_names_and_numbers() -> None:
    rng = np.random.default_rng(0)
    shops = rng.integers(0, 30, 1000)
    table = pd.DataFrame({"shop": shops.astype(str)})
    (reading,) = column_readings(table)
    assert (reading.kind, reading.done) == ("number", "numbers, and each a category")
    for effect in (rng.normal(size=30)[shops], shops / 10):
        y = effect + rng.normal(0, 0.2, 1000)
        model = TabularModel(max_iter=0).fit(table[:500], y[:500])
        assert r2_score(y[500:], model.predict(table[500:])) > 0.85
        mixed = pd.DataFrame({"shop": pd.Series([3, "3", "99", 3.0], dtype=object)})
        found = model.predict(mixed)
        assert found[0] == found[1] == found[3]
    assert "names" not in reading_how(pd.Series(["1", "2", "3", "N/A"] * 20))


def reading_how(column: pd.Series[Any]) -> Any:
    reading = reading_of(column, "it")
    assert reading is not None
    return reading.how


def test_categories_of_pandas_stay_categories() -> None:
    table = pd.DataFrame({"it": pd.Categorical(["1", "2", "3"] * 20)})
    assert TabularModel().fit(table, np.arange(60.0)).encoder_.is_category_ == [True]
    declared = TabularModel(kinds={"it": "auto"}).fit(table, np.arange(60.0))
    assert declared.encoder_.is_category_ == [False, True]


def test_control_characters_are_shown_escaped() -> None:
    (one,) = column_readings(pd.DataFrame({"a\x07": ["x\x1b[31m", "y\n"] * 20}))
    assert one.examples == ("x\\x1b[31m", "y\\n")
    assert shown(one.name) == "a\\x07"
    assert shown("32\u202f695,63 €") == "32 695,63 €"


FORMS: dict[str, tuple[Callable[[float], str], NumberForm]] = {
    "dollars": (lambda one: f"${one:,.2f}", NumberForm()),
    "dollars, minus first": (lambda one: f"-${-one:,.2f}" if one < 0 else f"${one:,.2f}", NumberForm()),
    "brackets": (lambda one: f"({-one:,.2f})" if one < 0 else f"{one:,.2f}", NumberForm()),
    "minus behind": (lambda one: f"{-one:.2f}-" if one < 0 else f"{one:.2f}", NumberForm()),
    "a real minus": (lambda one: f"{one:,.2f}".replace("-", "\u2212"), NumberForm()),
    "decimal comma": (lambda one: swapped(f"{one:,.2f}"), NumberForm(",")),
    "euros behind": (lambda one: f"{swapped(f'{one:,.2f}')} €", NumberForm(",")),
    "spaces": (lambda one: f"{one:,.2f}".replace(",", "\u00a0"), NumberForm()),
    "apostrophes": (lambda one: f"{one:,.2f}".replace(",", "’"), NumberForm()),
    "percent": (lambda one: f"{one:.2f} %", NumberForm()),
    "powers": (lambda one: f"{one:.17e}", NumberForm()),
    "units": (lambda one: f"{one:,.2f} mg/dL", NumberForm()),
}


@pytest.mark.parametrize("form", FORMS)
@given(st.integers(-(10**11), 10**11))
def test_a_number_that_is_written_is_the_number_that_is_read(form: str, cents: int) -> None:
    write, known = FORMS[form]
    text = write(cents / 100)
    (value,) = numbers_in([text], known)
    assert value == pytest.approx(cents / 100, rel=1e-15, abs=1e-12), text


@given(st.lists(st.text(max_size=12) | st.none(), min_size=1, max_size=30), st.text(max_size=8))
def test_any_text_is_read_without_an_error(values: list[str | None], name: str) -> None:
    column = pd.Series(values, dtype=object)
    reading = reading_of(column, name)
    if reading is not None:
        assert all(len(part) == len(values) for part in parts_of(column, reading))
        assert len(parts_of(column.iloc[:0], reading)) == len(parts_of(column, reading))
    column_readings(pd.DataFrame({name: column}))


def numbers_of_shops(rng: np.random.Generator, name: str = "shop") -> tuple[pd.DataFrame, Floats]:
    """Shops called by whole numbers, each with an effect of its own."""
    shops, effects = rng.choice(9000, 120, replace=False) + 1000, rng.normal(size=120)
    at = rng.integers(0, 120, 3000)
    return pd.DataFrame({name: shops[at]}), effects[at] + 0.3 * rng.normal(size=3000)


@pytest.mark.parametrize("name", ["shop", "column"])
def test_whole_numbers_that_are_names_of_shops_are_categories_as_well(name: str) -> None:
    table, y = numbers_of_shops(np.random.default_rng(0), name)
    (read,) = column_readings(table)
    assert (read.kind, read.done) == ("number", "numbers, and each a category")
    model = GALRegressor({"bank": [name]}, random_state=0)
    for written in (table, table.astype(str), table.astype(float)):
        model.fit(written[:2000], y[:2000])
        assert r2_score(y[2000:], model.predict(written[2000:])) > 0.85
    assert np.isfinite(model.predict(pd.DataFrame({name: [5, None, 10**9]}))).all()


def test_whole_numbers_that_count_or_measure_are_no_categories() -> None:
    rng = np.random.default_rng(0)
    skewed = rng.exponential(200, 3000).round()
    table = pd.DataFrame(
        {
            "age": rng.normal(45, 15, 3000).round().clip(18, 99),
            "score": rng.normal(600, 80, 3000).round(),
            "income": (rng.normal(4000, 900, 3000) / 50).round() * 50,
            "seconds": np.where(rng.random(3000) < 0.4, 0, skewed),
            "born": rng.integers(1925, 2007, 3000),
        }
    )
    assert [one.done for one in column_readings(table)] == ["as it is"] * 5


DAYS = pd.date_range("2015-01-03", "2022-12-30", periods=400).normalize()


@pytest.mark.parametrize("form", ["%d.%m.%y", "%d-%b-%y", "%d/%m/%y", "%m/%d/%y", "%y-%m-%d", "%d.%m.%Y"])
def test_years_of_two_digits_are_where_people_write_them(form: str) -> None:
    """12.10.22 is in 2022, though the 22nd of October 2012 is a day, too."""
    column = pd.Series(DAYS.strftime(form), name="since")
    reading = reading_of(column, "since")
    assert reading is not None
    expected = (DAYS - pd.Timestamp(0)).days.to_numpy(dtype=np.float64)
    np.testing.assert_array_equal(parts_of(column, reading)[0], expected)


@pytest.mark.parametrize(
    ("value", "days"),
    [
        ("{days} days {rest}", 1.0),
        ("{days} day, {rest}", 1.0),
        ("PT{n}M", 1 / 1440),
        ("{years}yrs {months}mon", 30.4375),
    ],
)
def test_durations_of_one_unit_and_a_clock_are_no_ids(value: str, days: float) -> None:
    texts = [
        value.format(
            days=n // 24 + 1, rest=f"{n % 24:02}:{n * 7 % 60:02}:11", n=n, years=n // 12, months=n % 12
        )
        for n in range(1, 301)
    ]
    (read,) = column_readings(pd.DataFrame({"talked": texts}))
    assert read.kind == "duration"
    assert read.reading is not None
    found = parts_of(pd.Series(texts), read.reading)[0]
    assert found[-1] / found[0] > 5
    assert (np.diff(found) > 0).all()
    assert days / 2 < found[0] < 3 * days


def test_stars_at_numbers_and_dates_of_zeros_are_understood() -> None:
    marked = [f"{n / 7:.1f}*" if n % 5 == 0 else f"{n / 7:.1f}" for n in range(1, 301)]
    dated = ["0000-00-00" if n % 4 == 0 else str(DAYS[n])[:10] for n in range(300)]
    lab, ended = column_readings(pd.DataFrame({"lab": marked, "ended": dated}))
    assert (lab.kind, lab.missing) == ("number", 0)
    assert (ended.kind, ended.missing) == ("date", 0.25)


def test_an_amount_paid_is_no_id() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.permutation(200_000)[:500]
    table = pd.DataFrame({"paid": numbers, "PAID": numbers, "grid": [f"{one}.5 €" for one in numbers]})
    assert [one.kind for one in column_readings(table)] == ["number"] * 3
    table = pd.DataFrame(dict.fromkeys(("Kundennr", "customerid", "CustomerID", "policy_no"), numbers))
    assert [one.kind for one in column_readings(table)] == ["id"] * 4


@pytest.mark.parametrize(("zone", "hours"), [("EST", -5), ("CEST", 2), ("pdt", -7), ("UTC", 0)])
def test_time_zones_by_name(zone: str, hours: int) -> None:
    column = pd.Series(DAYS.strftime(f"%Y-%m-%d 12:30:00 {zone}"), name="seen")
    reading = reading_of(column, "seen")
    assert reading is not None
    assert reading.kind == "date"
    expected = (DAYS - pd.Timestamp(0)).days.to_numpy(dtype=np.float64) + (12.5 - hours) / 24
    np.testing.assert_allclose(parts_of(column, reading)[0], expected)


@pytest.mark.parametrize(("first", "last"), [(1940, 2002), (1931, 2012), (1975, 2022), (2001, 2035)])
def test_two_digits_of_years_of_birth_are_of_one_lifetime(first: int, last: int) -> None:
    days = pd.date_range(f"{first}-01-03", f"{last}-12-30", periods=500).normalize()
    column = pd.Series(days.strftime("%d.%m.%y"), name="born")
    reading = reading_of(column, "born")
    assert reading is not None
    expected = (days - pd.Timestamp(0)).days.to_numpy(dtype=np.float64)
    np.testing.assert_array_equal(parts_of(column, reading)[0], expected)
    np.testing.assert_array_equal(parts_of(column[:3], reading)[0], expected[:3])
