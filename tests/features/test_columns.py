"""Tables: what columns are, and the features that they become."""

from __future__ import annotations

import datetime
import io
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import ember_ml as em
from ember_ml import ops
from ember_ml.features import ColumnFeatureExtractor
from ember_ml.features.column_types import detect, read


def kind(column: Any, max_categories: int = 50) -> str:
    return detect(read("c", column), max_categories)


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": [20, 31, 45, 28],
            "income": [1.5, np.nan, 2.5, 8.0],
            "member": [True, False, True, True],
            "city": ["Rome", "Oslo", None, "Rome"],
            "since": pd.to_datetime(
                ["2020-01-01 06:00", "2021-07-01 00:00", None, "2020-03-15 12:00"]
            ),
            "note": [
                "a long text about some thing",
                "another text that nobody reads",
                "what is said here is different",
                "the fourth one has seven words here",
            ],
        }
    )


class TestDetection:
    @pytest.mark.parametrize(
        ("column", "wanted"),
        [
            ([1, 2, 3], "numeric"),
            ([1, None, 2.5], "numeric"),
            ([True, False, None], "boolean"),
            ([True, 2], "numeric"),
            (["a", "b", None], "categorical"),
            (["2020-01-01", "2021-02-03 10:00", None], "datetime"),
            (["2020-01-01T10:00:00Z", "2021-02-03"], "datetime"),
            (["2020-13-01"], "categorical"),
            ([datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 5)], "datetime"),
            (["one two three four five", "six seven eight nine"], "text"),
            (["one two three four"] * 5, "categorical"),
            ([str(i) for i in range(60)], "text"),
            ([None, float("nan")], "numeric"),
            (np.array([1, 2], np.uint8), "numeric"),
            (np.array([True]), "boolean"),
            (np.array(["x", "y"]), "categorical"),
            (np.array(["2020-01-01"], "datetime64[D]"), "datetime"),
            (np.array([5], "timedelta64[s]"), "numeric"),
            (pd.Series([1, None], dtype="Int64"), "numeric"),
            (pd.Series([True, None], dtype="boolean"), "boolean"),
            (pd.Series([3, 4], dtype="category"), "categorical"),
            (pd.Series(["x", None], dtype="string"), "categorical"),
            (pd.Series(["x", "y"], dtype="str"), "categorical"),
            (pd.Series(pd.to_datetime(["2020-01-01"]).tz_localize("Europe/Rome")), "datetime"),
            (pd.Series(pd.to_timedelta([1, 2], unit="h")), "numeric"),
            (pd.Series(pd.period_range("2020-01", periods=2, freq="M")), "datetime"),
            (pd.Series([1, pd.NA], dtype=object), "numeric"),
            (pd.Series([True, None], dtype=object), "boolean"),
        ],
        ids=repr,
    )
    def test_kinds(self, column: Any, wanted: str) -> None:
        assert kind(column) == wanted

    def test_tensors(self, backend: str) -> None:
        assert kind(ops.asarray([1.0, 2.0])) == "numeric"
        assert kind(ops.asarray([1.0, 2.0]).native) == "numeric"
        assert kind(ops.asarray([True])) == "boolean"
        assert kind(ops.astype(ops.asarray([1.0, 2.0]), "bfloat16")) == "numeric"

    def test_more_categories_than_asked_for_are_text(self) -> None:
        assert kind(["a", "b", "c"], max_categories=2) == "text"

    def test_mixtures_ask(self) -> None:
        with pytest.raises(em.DTypeError, match=r"'c' mixes int, str; .*kinds=\{'c'"):
            kind([1, "a"])
        found = ColumnFeatureExtractor(kinds={"c": "categorical"}).fit({"c": [1, "a", 1.0]})
        assert found.feature_names_out() == ["c=1", "c=a"]


def test_numbers_and_categories_as_in_scikit_learn(backend: str) -> None:
    table = frame()
    found = ColumnFeatureExtractor(dtype="float64").fit_transform(table[["age", "income", "city"]])
    encoder = OneHotEncoder(handle_unknown="ignore", categories=[["Oslo", "Rome"]])
    reference = ColumnTransformer(
        [
            # Of one sample less, the average is the same and the spread is not: scale first.
            ("numbers", make_pipeline(StandardScaler(), SimpleImputer()), ["age", "income"]),
            ("texts", encoder, ["city"]),
        ],
        sparse_threshold=0.0,
    )
    wanted = reference.fit_transform(table)
    assert (found.backend, found.dtype) == (backend, "float64")
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-9)


def test_names_stand_in_the_order_of_columns(backend: str) -> None:
    extractor = ColumnFeatureExtractor(text_features=2).fit(frame())
    cycles = [f"since_{c}_{f}" for c in ("day", "week", "year") for f in ("sin", "cos")]
    names = ["age", "income", "member", "city=Oslo", "city=Rome", "since_trend", *cycles]
    assert extractor.feature_names_out() == [*names, "note#0", "note#1"]
    found = extractor(frame())
    assert (found.backend, found.dtype, found.shape) == (backend, "float32", (4, 14))
    rows = dict(zip(extractor.feature_names_out(), found.numpy().T.tolist(), strict=True))
    assert rows["member"] == [1.0, 0.0, 1.0, 1.0]
    assert rows["city=Rome"] == [1.0, 0.0, 0.0, 1.0]
    assert [a + b for a, b in zip(rows["note#0"], rows["note#1"], strict=True)] == [6, 5, 6, 7]
    assert rows["income"][1] == 0.0
    for name in ("since_trend", *cycles):
        assert rows[name][2] == 0.0, name


def test_times_go_round(backend: str) -> None:
    times = ["2024-01-01T00:00", "2024-01-02T06:00", "2024-01-01T12:00", "2023-07-02T12:00"]
    extractor = ColumnFeatureExtractor(dtype="float64").fit({"t": times})
    found = dict(zip(extractor.feature_names_out(), extractor({"t": times}).numpy().T, strict=True))
    np.testing.assert_allclose(found["t_day_sin"], [0, 1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(found["t_day_cos"], [1, 0, -1, -1], atol=1e-12)
    week = 2 * math.pi * np.array([0.0, 1.25, 0.5, 6.5]) / 7  # from Monday on
    np.testing.assert_allclose(found["t_week_sin"], np.sin(week), atol=1e-12)
    # The second of July at noon is the middle of a year of 365 days.
    np.testing.assert_allclose(found["t_year_cos"][[0, 3]], [1.0, -1.0], atol=1e-9)
    days = np.array([0.0, 1.25, 0.5, -182.5])
    np.testing.assert_allclose(found["t_trend"], (days - days.mean()) / days.std(), rtol=1e-9)


def test_cycles_that_do_not_vary_are_left_out() -> None:
    extractor = ColumnFeatureExtractor().fit({"t": ["2024-01-01", "2024-01-08"]})
    assert extractor.feature_names_out() == ["t_trend", "t_year_sin", "t_year_cos"]


def test_one_instant_in_many_clothes() -> None:
    times = [
        pd.Series(pd.to_datetime(["2024-05-01 10:00", "2024-05-02 11:30"])),
        pd.Series(
            pd.to_datetime(["2024-05-01 10:00", "2024-05-02 11:30"]).tz_localize("Asia/Tokyo")
        ),
        ["2024-05-01 10:00:00+09:00", "2024-05-02T11:30"],
        [datetime.datetime(2024, 5, 1, 10), datetime.datetime(2024, 5, 2, 11, 30)],
        np.array(["2024-05-01T10:00", "2024-05-02T11:30"], "datetime64[m]"),
    ]
    extractor = ColumnFeatureExtractor(dtype="float64").fit({"t": times[0]})
    wanted = extractor({"t": times[0]}).tolist()
    for other in times[1:]:
        assert extractor({"t": other}).tolist() == wanted


def test_unknown_categories() -> None:
    table, new = {"c": ["a", "b", "a", None]}, {"c": ["b", "z", None]}
    assert ColumnFeatureExtractor().fit(table)(new).tolist() == [[0, 1], [0, 0], [0, 0]]
    other = ColumnFeatureExtractor(unknown="other").fit(table)
    assert other.feature_names_out() == ["c=a", "c=b", "c=<other>"]
    assert other(new).tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    with pytest.raises(em.DomainError, match="'c' has 'z', which fit has not seen"):
        ColumnFeatureExtractor(unknown="error").fit(table)(new)


def test_the_most_frequent_categories_count() -> None:
    column = pd.Series(["a"] * 3 + ["b"] + ["c"] * 2, dtype="category")
    extractor = ColumnFeatureExtractor(max_categories=2).fit({"c": column})
    assert extractor.feature_names_out() == ["c=a", "c=c"]


def test_options() -> None:
    table = frame()
    kinds = {"age": "categorical", "note": "ignore", "since": "ignore", "city": "text"}
    extractor = ColumnFeatureExtractor(
        kinds=kinds, standardize=False, missing_indicator=True, text_features=0
    ).fit(table)
    names = [*(f"age={a}" for a in (20, 28, 31, 45)), "income", "income_missing", "member"]
    assert extractor.feature_names_out() == [*names, "city_missing"]
    found = extractor(table).numpy()
    assert found[1].tolist() == [0.0, 0.0, 1.0, 0.0, 4.0, 1.0, 0.0, 0.0]
    assert found[2].tolist() == [0.0, 0.0, 0.0, 1.0, 2.5, 0.0, 1.0, 1.0]


def test_missing_truth_is_the_share_of_truth() -> None:
    table = {"b": [True, None, False, True]}
    np.testing.assert_allclose(ColumnFeatureExtractor().fit_transform(table).numpy()[1], [2 / 3])


def test_a_column_without_values_gives_zeros(backend: str) -> None:
    table = {"a": [None, None], "b": [1.0, 3.0]}
    for standardize in (True, False):
        found = ColumnFeatureExtractor(standardize=standardize).fit_transform(table)
        assert found.numpy()[:, 0].tolist() == [0.0, 0.0]


def test_only_categories(backend: str) -> None:
    extractor = ColumnFeatureExtractor().fit({"c": ["a", "b"]})
    found = extractor({"c": ["b"]})
    assert (found.backend, found.tolist()) == (backend, [[0.0, 1.0]])


def test_tensors_keep_their_backend(backend: str) -> None:
    table = {"x": ops.asarray([1.0, 3.0]), "c": ["a", "b"]}
    with em.use_backend("numpy"):
        extractor = ColumnFeatureExtractor().fit(table)
        assert extractor(table).backend == backend
        assert extractor({"x": [1.0], "c": ["a"]}).backend == backend
        if backend != "numpy":
            with pytest.raises(em.BackendMismatchError):
                extractor({"x": ops.asarray([1.0]), "c": ["a"]})


def test_no_rows_give_no_features(backend: str) -> None:
    extractor = ColumnFeatureExtractor().fit(frame())
    assert extractor(frame().iloc[:0]).shape == (0, len(extractor.feature_names_out()))


def test_summary() -> None:
    output = io.StringIO()
    Console(file=output, width=100).print(ColumnFeatureExtractor().fit(frame()).summary())
    text = output.getvalue()
    for word in ("age", "numeric", "int64", "boolean", "categorical", "datetime", "text"):
        assert word in text
    line = next(line for line in text.splitlines() if "income" in line)
    assert [cell.strip() for cell in line.split("│")[1:-1]][3:] == ["1", "3", "1"]


def test_mistakes() -> None:
    fresh = ColumnFeatureExtractor()
    with pytest.raises(em.NotFittedError):
        fresh({"a": [1]})
    with pytest.raises(em.NotFittedError):
        fresh.summary()
    with pytest.raises(em.DTypeError, match="a pandas DataFrame or a dict of columns, not list"):
        fresh.fit([[1, 2]])
    with pytest.raises(em.ShapeError, match=r"different lengths: \{'a': 1, 'b': 2\}"):
        fresh.fit({"a": [1], "b": [1, 2]})
    with pytest.raises(em.ShapeError, match="one axis"):
        fresh.fit({"a": np.ones((2, 2))})
    with pytest.raises(em.ShapeError, match="without rows"):
        fresh.fit({"a": []})
    with pytest.raises(em.ShapeError, match="no feature"):
        ColumnFeatureExtractor(kinds={"a": "ignore"}).fit({"a": [1]})
    with pytest.raises(em.DomainError, match="'a' has infinite values"):
        fresh.fit({"a": [1.0, math.inf]})
    with pytest.raises(em.DomainError, match=r"several columns of the name '1'"):
        fresh.fit({"1": [1], 1: [2]})
    with pytest.raises(em.DTypeError, match="complex64"):
        fresh.fit({"a": np.ones(2, np.complex64)})
    with pytest.raises(em.DTypeError, match="which is no category"):
        ColumnFeatureExtractor(kinds={"a": "categorical"}).fit({"a": [[1], [2]]})
    fitted = ColumnFeatureExtractor().fit({"a": [1.0, 2.0], "t": ["2020-01-01", "2020-01-02"]})
    with pytest.raises(em.DomainError, match=r"no column \['t'\]"):
        fitted({"a": [1.0]})
    with pytest.raises(em.DTypeError, match="'a' is numeric, and its values are not: 'x'"):
        fitted({"a": ["x"], "t": ["2020-01-01"]})
    with pytest.raises(em.DTypeError, match="'t' is datetime, and its values are not: 'soon'"):
        fitted({"a": [1.0], "t": ["soon"]})
    for wrong in (
        {"kinds": {"a": "number"}},
        {"unknown": "drop"},
        {"max_categories": 0},
        {"text_features": -1},
    ):
        with pytest.raises(em.DomainError, match=next(iter(wrong))):
            ColumnFeatureExtractor(**wrong)  # type: ignore[arg-type]
    with pytest.raises(em.DTypeError, match="floats, not int32"):
        ColumnFeatureExtractor(dtype="int32")
    with pytest.raises(em.DomainError, match=r"kinds for \['z'\]"):
        ColumnFeatureExtractor(kinds={"z": "text"}).fit({"a": [1]})
