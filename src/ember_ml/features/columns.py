"""Features of tables: each column by what it holds."""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.backend.contract import Backend
from ember_ml.errors import DomainError, DTypeError, FormatError, ShapeError
from ember_ml.features.base import FeatureExtractor
from ember_ml.features.column_types import KINDS, Array, Kind, Values, as_kind, detect, read
from ember_ml.features.data import is_frame
from ember_ml.features.moments import centered, moments
from ember_ml.ops.dispatch import home_of
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import DTypeLike

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Column", "ColumnFeatureExtractor", "Unknown"]

# What becomes of a category that `fit` has not seen: zeros, an error, or a feature for all such.
Unknown = Literal["ignore", "error", "other"]

_DAY = np.timedelta64(1, "D")
_WORD = re.compile(r"\w+")


@dataclass(slots=True)
class Column:
    """What `fit` found of a column, and the names of the features that it becomes."""

    name: str
    kind: Kind
    source: str
    missing: int
    distinct: int
    features: list[str] = field(default_factory=list)
    # The first of the features is standardised: the number, or the time as a trend.
    scaled: bool = False
    share: float = 0.0  # of truth among truth values
    categories: list[Any] = field(default_factory=list)
    origin: str = ""  # of a trend
    cycles: list[str] = field(default_factory=list)
    buckets: int = 0


class ColumnFeatureExtractor(FeatureExtractor):
    """A matrix of features of a table: a pandas DataFrame, or a dict from names to columns.

    | a column that is | becomes | and where a value is missing |
    |---|---|---|
    | numeric | itself, standardised | the average |
    | boolean | 0 or 1 | the share of truth |
    | categorical | 0 or 1 for each category | zeros |
    | datetime | a trend, standardised; sine and cosine of day, week and year | zeros |
    | text | counts of its words, by `text_features` hashes | zeros |

    What a column is, its dtype tells, or else its values; `kinds` overrules that by name, and
    "ignore" leaves a column out. Of a categorical column, the `max_categories` most frequent
    categories count. Cycles that do not vary in `fit` are left out, as are its constant times of
    day. `missing_indicator` adds a feature for each column in which values were missing.

    >>> from ember_ml.features import ColumnFeatureExtractor
    >>> table = {"size": [1.0, 3.0, None], "color": ["red", "blue", "red"]}
    >>> extractor = ColumnFeatureExtractor().fit(table)
    >>> extractor.feature_names_out()
    ['size', 'color=blue', 'color=red']
    >>> extractor.transform(table).tolist()
    [[-1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    OPTIONS = (
        "kinds",
        "standardize",
        "unknown",
        "max_categories",
        "text_features",
        "missing_indicator",
        "dtype",
    )
    LEARNED: ClassVar[Any] = {"columns_": list, "mean_": Tensor, "scale_": Tensor}

    columns_: list[Column]
    mean_: Tensor
    scale_: Tensor

    def __init__(
        self,
        *,
        kinds: Mapping[str, str] | None = None,
        standardize: bool = True,
        unknown: Unknown = "ignore",
        max_categories: int = 50,
        text_features: int = 16,
        missing_indicator: bool = False,
        dtype: DTypeLike = None,
    ) -> None:
        self.kinds = dict(kinds or {})
        self.standardize = standardize
        self.unknown: Unknown = unknown
        self.max_categories = max_categories
        self.text_features = text_features
        self.missing_indicator = missing_indicator
        self.dtype = dtypes.to_dtype(dtype or dtypes.default_float).name
        for name, kind in self.kinds.items():
            if kind not in (*KINDS, "ignore"):
                raise DomainError(
                    f"ColumnFeatureExtractor got kinds={{{name!r}: {kind!r}}}; "
                    f"there are {', '.join(KINDS)} and ignore"
                )
        if unknown not in ("ignore", "error", "other"):
            raise DomainError(
                f"ColumnFeatureExtractor takes unknown='ignore', 'error' or 'other', "
                f"not {unknown!r}"
            )
        if max_categories < 1 or text_features < 0:
            raise DomainError(
                f"ColumnFeatureExtractor got max_categories={max_categories} and "
                f"text_features={text_features}; they count from one and from zero"
            )
        if not dtypes.to_dtype(self.dtype).is_floating:
            raise DTypeError(f"ColumnFeatureExtractor gives floats, not {self.dtype}")

    # --- Learning ---------------------------------------------------------------------------

    def fit(self, x: Any, /) -> Self:
        """Learn what the columns hold."""
        table, home = _columns("ColumnFeatureExtractor.fit", x)
        absent = sorted(self.kinds.keys() - table.keys())
        if absent:
            raise DomainError(
                f"ColumnFeatureExtractor has kinds for {absent}, and the columns are {list(table)}"
            )
        rows = _rows("ColumnFeatureExtractor.fit", table)
        if not rows:
            raise ShapeError("ColumnFeatureExtractor.fit got a table without rows")
        self._forget()
        found = [
            self._plan(values) for name, values in table.items() if self.kinds.get(name) != "ignore"
        ]
        if not any(column.features for column in found):
            raise ShapeError(
                f"ColumnFeatureExtractor.fit got the columns {list(table)}, of which no feature "
                f"comes"
            )
        scaled = [_first(table[column.name], column) for column in found if column.scaled]
        numbers = np.stack(scaled, axis=1) if scaled else np.zeros((rows, 0))
        learned = moments(self._placed(numbers, home))
        self.columns_, self.mean_, self.scale_ = found, learned.mean, learned.spread()
        return self

    def _plan(self, values: Values) -> Column:
        told: Any = self.kinds.get(values.name)
        kind: Kind = told or detect(values, self.max_categories)
        typed, missing = as_kind(values, kind)
        present = typed[~missing]
        column = Column(
            values.name, kind, values.source, int(missing.sum()), _distinct(values.name, present)
        )
        if kind == "numeric":
            if np.isinf(present).any():
                raise DomainError(f"the column {column.name!r} has infinite values")
            column.scaled, column.features = True, [column.name]
        elif kind == "boolean":
            column.share = float(present.mean()) if len(present) else 0.0
            column.features = [column.name]
        elif kind == "categorical":
            common = Counter(map(_plain, present)).most_common(self.max_categories)
            column.categories = _ordered([category for category, _ in common])
            column.features = [f"{column.name}={category}" for category in column.categories]
            if self.unknown == "other":
                column.features.append(f"{column.name}=<other>")
        elif kind == "datetime":
            self._plan_times(column, present)
        else:
            column.buckets = self.text_features
            column.features = [f"{column.name}#{i}" for i in range(column.buckets)]
        if self.missing_indicator and column.missing:
            column.features.append(f"{column.name}_missing")
        return column

    def _plan_times(self, column: Column, present: Array) -> None:
        column.origin = str(present.min()) if len(present) else "1970-01-01T00:00:00"
        phases = _phases(present)
        column.cycles = [name for name, phase in phases.items() if len(set(phase.tolist())) > 1]
        column.scaled = True
        column.features = [f"{column.name}_trend"]
        for cycle in column.cycles:
            column.features += [f"{column.name}_{cycle}_sin", f"{column.name}_{cycle}_cos"]

    # --- Applying ---------------------------------------------------------------------------

    def extract(self, data: Any, /) -> Tensor:
        """The features of the rows of a table."""
        self._require_fitted("transform")
        who = "ColumnFeatureExtractor.transform"
        table, _ = _columns(who, data, self.mean_)
        absent = [column.name for column in self.columns_ if column.name not in table]
        if absent:
            raise DomainError(f"{who} got no column {absent}; it got {list(table)}")
        rows = _rows(who, {column.name: table[column.name] for column in self.columns_})
        scaled: list[Array] = []
        plain: list[Array] = []
        order: list[int] = []  # of the features, in the matrix that has the scaled ones first
        first = sum(column.scaled for column in self.columns_)
        for column in self.columns_:
            blocks = self._encoded(table[column.name], column)
            if column.scaled:
                order.append(len(scaled))
                scaled.append(blocks.pop(0))
            order += range(first + len(plain), first + len(plain) + len(blocks))
            plain += blocks
        wanted = dtypes.to_dtype(self.dtype)
        home = self.mean_._spec.backend
        parts = []
        if scaled:
            parts.append(convert.cast(self._scaled(np.stack(scaled, axis=1)), wanted))
        if plain:
            parts.append(convert.cast(self._placed(np.stack(plain, axis=1), home), wanted))
        found = ops.concat(parts, axis=1)
        return ops.reshape(ops.take(found, order, axis=1), (rows, len(order)))

    def _scaled(self, numbers: Array) -> Tensor:
        x = self._placed(numbers, self.mean_._spec.backend)
        if self.standardize:
            x = centered(x, self.mean_) / self.scale_
            return ops.where(ops.isnan(x), ops.zeros_like(x), x)
        # A column that had no values at all has no average either.
        mean = ops.where(ops.isnan(self.mean_), ops.zeros_like(self.mean_), self.mean_)
        return ops.where(ops.isnan(x), ops.broadcast_to(mean, x.shape), x)

    def _placed(self, numbers: Array, home: Backend) -> Tensor:
        device = self.mean_.device if self.is_fitted else convert.device_for(home)
        wide = home.supports(dtypes.float64, device)
        dtype = dtypes.float64 if wide else dtypes.float32
        return convert.asarray(numbers, dtype=dtype, device=device, backend=home)

    def _encoded(self, values: Values, column: Column) -> list[Array]:
        """The features of a column, as columns; the first is not scaled yet."""
        typed, missing = as_kind(values, column.kind)
        if column.kind == "numeric":
            found = [typed]
        elif column.kind == "boolean":
            found = [np.where(missing, column.share, np.not_equal(typed, 0.0))]
        elif column.kind == "categorical":
            found = self._categories(typed, missing, column)
        elif column.kind == "datetime":
            found = [_trend(typed, column.origin)]
            phases = _phases(typed)
            for cycle in column.cycles:
                turn = 2.0 * math.pi * phases[cycle]
                found += [np.where(missing, 0.0, f(turn)) for f in (np.sin, np.cos)]
        else:
            found = list(_word_counts(typed, missing, column.buckets).T)
        if len(found) < len(column.features):
            found.append(missing.astype(np.float64))
        return found

    def _categories(self, values: Array, missing: Array, column: Column) -> list[Array]:
        places = {category: i for i, category in enumerate(column.categories)}
        other = len(places)
        found = np.zeros((len(values), other + (self.unknown == "other")))
        for row in np.flatnonzero(~missing):
            value = _plain(values[row])
            place = places.get(value, other)
            if place == other and self.unknown == "error":
                raise DomainError(
                    f"the column {column.name!r} has {value!r}, which fit has not seen; it has "
                    f"{column.categories}. unknown='ignore' takes it as none of them"
                )
            if place < found.shape[1]:
                found[row, place] = 1.0
        return list(found.T)

    # --- What was found ---------------------------------------------------------------------

    def feature_names_out(self) -> list[str]:
        """The names of the features: those of their columns, with what they say of them."""
        self._require_fitted("feature_names_out")
        return [name for column in self.columns_ for name in column.features]

    def summary(self) -> Table:
        """What `fit` found, as a table that rich prints."""
        from rich.table import Table

        self._require_fitted("summary")
        table = Table("column", "kind", "dtype", title="Columns")
        for heading in ("missing", "distinct", "features"):
            table.add_column(heading, justify="right")
        for column in self.columns_:
            counts = (column.missing, column.distinct, len(column.features))
            table.add_row(column.name, column.kind, column.source, *map(str, counts))
        return table

    def state_dict(self) -> dict[str, Any]:
        """The options, what was found of the columns, and the scale of numbers."""
        state = super().state_dict()
        if self.is_fitted:
            state["columns_"] = [asdict(column) for column in self.columns_]
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """An extractor of a state that `state_dict` gave."""
        found = super().from_state(state)
        if found.is_fitted:
            found.columns_ = [Column(**column) for column in state["columns_"]]
            if any(column.kind not in KINDS for column in found.columns_):
                raise FormatError("the state of a ColumnFeatureExtractor has an unknown kind")
        return found


# --- Tables ---------------------------------------------------------------------------------


def _columns(
    who: str, data: Any, learned: Tensor | None = None
) -> tuple[dict[str, Values], Backend]:
    """The columns of a table, and the backend of those that are tensors, or else the current."""
    if is_frame(data):
        listed = [(str(name), data.iloc[:, i]) for i, name in enumerate(data.columns)]
    elif isinstance(data, Mapping):
        listed = [(str(name), column) for name, column in data.items()]
    else:
        raise DTypeError(
            f"{who} takes a pandas DataFrame or a dict of columns, not {type(data).__name__}"
        )
    twice = [name for name, count in Counter(name for name, _ in listed).items() if count > 1]
    if twice:
        raise DomainError(f"{who} got several columns of the name {', '.join(map(repr, twice))}")
    # In the end they are joined, and the rule is that of the op which does it.
    home = home_of("concat", (learned, *(column for _, column in listed)))
    return {name: read(name, column) for name, column in listed}, home


def _rows(who: str, table: Mapping[str, Values]) -> int:
    lengths = {name: len(values.values) for name, values in table.items()}
    if len(set(lengths.values())) > 1:
        raise ShapeError(f"{who} got columns of different lengths: {lengths}")
    return next(iter(lengths.values()), 0)


def _first(values: Values, column: Column) -> Array:
    """The number, or the time as days since the first: what is standardised of a column."""
    typed, _ = as_kind(values, column.kind)
    return typed if column.kind == "numeric" else _trend(typed, column.origin)


def _trend(times: Array, origin: str) -> Array:
    days: Array = (times - np.datetime64(origin, "us")) / _DAY
    return days


def _phases(times: Array) -> dict[str, Array]:
    """How much of its day, week and year has passed at a time, from 0 to 1."""
    midnight = times.astype("datetime64[D]")
    day = (times - midnight) / _DAY
    weekday = (midnight - np.datetime64("1970-01-05")) / _DAY % 7.0  # that was a Monday
    year = times.astype("datetime64[Y]")
    began = year.astype("datetime64[D]")
    length = ((year + 1).astype("datetime64[D]") - began) / _DAY
    passed = (midnight - began) / _DAY
    return {"day": day, "week": (weekday + day) / 7.0, "year": (passed + day) / length}


def _distinct(name: str, present: Array) -> int:
    try:
        return len(set(present.tolist()))
    except TypeError:
        raise DTypeError(
            f"the column {name!r} holds {type(present[0]).__name__}, which is no category"
        ) from None


def _plain(value: Any) -> Any:
    """A category as a Python object that files can hold."""
    found = value.item() if isinstance(value, np.generic) else value
    if isinstance(found, float) and found.is_integer():
        return int(found)  # integers become floats where one of them is missing
    return found if isinstance(found, str | int | float | bool) else str(found)


def _ordered(categories: list[Any]) -> list[Any]:
    return sorted(categories, key=lambda c: (isinstance(c, str), c))


def _word_counts(texts: Array, missing: Array, buckets: int) -> Array:
    found = np.zeros((len(texts), buckets))
    if not buckets:
        return found
    for row in np.flatnonzero(~missing):
        for word in _WORD.findall(str(texts[row]).lower()):
            # Python's own hash differs from process to process.
            found[row, zlib.crc32(word.encode("utf-8", "surrogatepass")) % buckets] += 1.0
    return found
