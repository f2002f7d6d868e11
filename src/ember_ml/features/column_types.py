"""What a column of a table holds: numbers, truth values, categories, times or texts."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from ember_ml.errors import DTypeError, ShapeError
from ember_ml.features.data import is_series
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor

__all__ = ["KINDS", "Kind", "Values", "as_kind", "detect", "read"]

Kind = Literal["numeric", "boolean", "categorical", "datetime", "text"]
KINDS: tuple[str, ...] = get_args(Kind)

Array = np.ndarray[Any, Any]

_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:$|[T ])")
_WORDS_OF_TEXT = 3  # on average; names of things have fewer


@dataclass(frozen=True, slots=True)
class Values:
    """A column on the host: what its dtype tells (None for objects), and where values miss."""

    name: str
    kind: Kind | None
    values: Array
    missing: Array
    source: str  # the dtype, as its owner calls it


def read(name: str, column: Any) -> Values:
    """A column of a table: a pandas Series, a tensor, an array or a list."""
    if is_series(column):
        return _of_series(name, column)
    source = type(column).__name__
    if isinstance(column, Tensor) or convert.backend_of(column) is not None:
        column = convert.to_tensor(column).detach().numpy()
    if isinstance(column, np.ndarray):
        source = str(column.dtype)
    else:
        listed = list(column)
        column = np.empty(len(listed), dtype=object)
        for i, value in enumerate(listed):
            column[i] = value
    if column.ndim != 1:
        raise ShapeError(f"the column {name!r} has shape {column.shape}; a column has one axis")
    return _of_array(name, column, source)


def _of_series(name: str, series: Any) -> Values:
    source, kind = str(series.dtype), getattr(series.dtype, "kind", "O")
    missing = np.asarray(series.isna().to_numpy(), dtype=bool)
    if source == "category":
        return Values(name, "categorical", series.to_numpy(dtype=object), missing, source)
    if kind == "b":
        truths = np.array([bool(v) for v in series.to_numpy(dtype=object, na_value=False)], bool)
        return Values(name, "boolean", truths, missing, source)
    if kind in "iuf":
        numbers = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return Values(name, "numeric", numbers, missing, source)
    if source.startswith("period"):
        series, kind = series.dt.to_timestamp(), "M"
    if kind == "M":
        if getattr(series.dtype, "tz", None) is not None:
            series = series.dt.tz_localize(None)  # hours of the day are those of the clock there
        return Values(name, "datetime", _microseconds(series.to_numpy()), missing, source)
    if kind == "m":
        return Values(name, "numeric", series.dt.total_seconds().to_numpy(), missing, source)
    found = _of_array(name, series.to_numpy(dtype=object), source)
    return Values(name, found.kind, found.values, missing | found.missing, source)


def _of_array(name: str, array: Array, source: str) -> Values:
    kind = array.dtype.kind
    present = np.zeros(len(array), dtype=bool)
    if kind == "b":
        return Values(name, "boolean", array, present, source)
    if kind in "iuf" or source == "bfloat16":
        numbers = array.astype(np.float64)
        return Values(name, "numeric", numbers, np.isnan(numbers), source)
    if kind == "M":
        return Values(name, "datetime", _microseconds(array), np.isnat(array), source)
    if kind == "m":
        seconds = array / np.timedelta64(1, "s")
        return Values(name, "numeric", seconds, np.isnat(array), source)
    if kind in "USTO":
        objects = array.astype(object)
        missing = np.fromiter((_is_missing(v) for v in objects), bool, len(objects))
        return Values(name, None, objects, missing, source)
    raise DTypeError(
        f"the column {name!r} has dtype {source}; columns hold real numbers, texts, "
        f"truth values and times"
    )


def _microseconds(times: Array) -> Array:
    return times.astype("datetime64[us]")


def _is_missing(value: object) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and bool(value != value)


# --- Which kind -----------------------------------------------------------------------------


def detect(column: Values, max_categories: int) -> Kind:
    """The kind of a column: what its dtype tells, else what its values are.

    Texts are times where all begin with a date as in ISO 8601. Else they are categories, unless
    there are more than `max_categories` different ones, or they are mostly different and have
    more than three words on average.
    """
    if column.kind is not None:
        return column.kind
    values = column.values[~column.missing]
    if not len(values):
        return "numeric"  # nothing is known of it, and nothing will come of it
    if all(isinstance(v, bool | np.bool_) for v in values):
        return "boolean"
    if all(_is_number(v) for v in values):
        return "numeric"
    if all(_is_time(v) for v in values):
        return "datetime"
    if all(isinstance(v, str) for v in values):
        return _kind_of_texts(values, max_categories)
    kinds = sorted({type(v).__name__ for v in values})
    raise DTypeError(
        f"the column {column.name!r} mixes {', '.join(kinds)}; tell what it is: "
        f"kinds={{{column.name!r}: 'categorical'}}, or 'ignore'"
    )


def _kind_of_texts(values: Array, max_categories: int) -> Kind:
    distinct = set(values)
    if all(_ISO_DATE.match(v) for v in distinct) and _parsed(distinct) is not None:
        return "datetime"
    if len(distinct) > max_categories:
        return "text"
    words = sum(len(v.split()) for v in distinct) / len(distinct)
    return "text" if words > _WORDS_OF_TEXT and 2 * len(distinct) > len(values) else "categorical"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number | np.bool_) and not isinstance(
        value, complex | np.complexfloating
    )


def _is_time(value: object) -> bool:
    return isinstance(value, datetime.date | np.datetime64)


def _parsed(texts: Iterable[str]) -> dict[str, np.datetime64] | None:
    try:
        return {text: _time(datetime.datetime.fromisoformat(text)) for text in texts}
    except ValueError:
        return None


def _time(value: Any) -> np.datetime64:
    if isinstance(value, datetime.datetime):
        value = value.replace(tzinfo=None)  # the clock's own time, as for whole columns
    return np.datetime64(value, "us")


# --- As that kind ---------------------------------------------------------------------------


def as_kind(column: Values, kind: Kind) -> tuple[Array, Array]:
    """The values of a column as one of the kinds, and where they miss.

    numeric and boolean give float64, datetime gives microseconds, the others objects.
    """
    missing = column.missing
    if kind in ("categorical", "text"):
        return column.values.astype(object), missing
    if kind == "datetime":
        return _as_times(column), missing
    found = np.full(len(column.values), np.nan)
    try:
        found[~missing] = column.values[~missing].astype(np.float64)
    except (TypeError, ValueError):
        raise _not(column, kind) from None
    if column.kind == "datetime":
        raise _not(column, kind)
    return found, missing


def _as_times(column: Values) -> Array:
    if column.kind == "datetime":
        return column.values
    present = column.values[~column.missing]
    found = np.full(len(column.values), np.datetime64("NaT", "us"))
    if all(_is_time(v) for v in present):
        found[~column.missing] = [_time(v) for v in present]
        return found
    known = _parsed(set(present)) if all(isinstance(v, str) for v in present) else None
    if known is None:
        raise _not(column, "datetime")
    found[~column.missing] = [known[v] for v in present]
    return found


def _not(column: Values, kind: str) -> DTypeError:
    example = next(iter(column.values[~column.missing]), None)
    return DTypeError(
        f"the column {column.name!r} is {kind}, and its values are not: {example!r} for one, "
        f"of {column.source}"
    )
