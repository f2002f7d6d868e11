"""What all feature extractors share: fit and transform, composition, and their state in files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ember_ml.backend import selection
from ember_ml.backend.contract import Backend
from ember_ml.errors import DomainError, DTypeError, FormatError, NotFittedError, ShapeError
from ember_ml.features import data
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["FeatureExtractor", "MatrixExtractor", "Pipeline"]


class FeatureExtractor(ABC):
    """From data to features. A subclass writes `extract`, and `fit` where it learns something.

    OPTIONS names the arguments of the constructor, which are attributes as well; LEARNED names
    what `fit` sets, with its types. Saving, moving and `repr` follow from the two.

    >>> from ember_ml.features import base
    >>> class Log(base.FeatureExtractor):
    ...     def extract(self, data):
    ...         return ops.log1p(tensor.convert_to_tensor(data))
    >>> Log()([0.0]).tolist()
    [0.0]
    """

    OPTIONS: ClassVar[tuple[str, ...]] = ()
    LEARNED: ClassVar[Mapping[str, type | tuple[type, ...]]] = {}

    @abstractmethod
    def extract(self, data: Any, /) -> Any:
        """The features of `data`."""

    def fit(self, x: TensorLike, /) -> Self:
        """Learn from `x`; nothing, unless a subclass does."""
        return self

    def transform(self, x: TensorLike, /) -> Tensor:
        """The features of `x`: `extract` under the name that scikit-learn has for it."""
        found: Tensor = self.extract(x)
        return found

    def __call__(self, x: TensorLike, /) -> Tensor:
        """The features of `x`, as `transform` gives them."""
        return self.transform(x)

    def fit_transform(self, x: TensorLike, /, *args: Any, **options: Any) -> Tensor:
        """Learn from `x`, and give its features."""
        fit: Any = self.fit  # subclasses take options of their own
        found: Tensor = fit(x, *args, **options).transform(x)
        return found

    def inverse_transform(self, x: TensorLike, /) -> Tensor:
        """From features back to data; an error where there is no way back."""
        raise DomainError(f"{type(self).__name__} has no inverse: it keeps too little of its input")

    def then(self, *others: FeatureExtractor) -> Pipeline:
        """This extractor, and others on what it gives."""
        return Pipeline(self, *others)

    def feature_names_out(self) -> list[str]:
        """A name for each feature."""
        raise DomainError(f"{type(self).__name__} gives its features no names")

    # --- What was learned -------------------------------------------------------------------

    @property
    def is_fitted(self) -> bool:
        """True after `fit`, and for extractors that learn nothing."""
        return all(name in self.__dict__ for name in self.LEARNED)

    def _require_fitted(self, call: str) -> None:
        if not self.is_fitted:
            name = type(self).__name__
            raise NotFittedError(f"{name}.{call} needs what fit learns; call {name}.fit(x) first")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in type(self).LEARNED:
                kind = type(self).__name__
                raise NotFittedError(f"{kind} has {name!r} only after fit; call {kind}.fit(x)")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def get_config(self) -> dict[str, Any]:
        """The options, as the constructor takes them."""
        return {name: getattr(self, name) for name in self.OPTIONS}

    def state_dict(self) -> dict[str, Any]:
        """The options under "config", and what was learned, as a tree that `em.save` takes."""
        learned = {name: getattr(self, name) for name in self.LEARNED} if self.is_fitted else {}
        return {"config": self.get_config(), **learned}

    def _forget(self) -> None:
        """Have nothing learned: a `fit` that fails leaves no half of it behind."""
        for name in self.LEARNED:
            if name in self.__dict__:
                delattr(self, name)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """An extractor of a state that `state_dict` gave."""
        found = cls(**state["config"])
        learned = {name: value for name, value in state.items() if name != "config"}
        if learned and learned.keys() != cls.LEARNED.keys():
            wrong = ", ".join(sorted(learned.keys() ^ cls.LEARNED.keys()))
            raise FormatError(f"the state of a {cls.__name__} has too much or too little: {wrong}")
        for name, value in learned.items():
            if not isinstance(value, cls.LEARNED[name]):
                raise FormatError(
                    f"the state of a {cls.__name__} has {name} of type {type(value).__name__}"
                )
            setattr(found, name, value)
        return found

    def to_backend(self, name: str) -> Self:
        """The same extractor, with what it learned on another backend."""
        return self.from_state(_moved(self.state_dict(), selection.load(name)))

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.get_config().items())
        return f"{type(self).__name__}({options})"


def _moved(node: Any, backend: Backend) -> Any:
    if isinstance(node, Tensor):
        return convert.to_backend(node, backend)
    if isinstance(node, FeatureExtractor):
        return node.to_backend(backend.name)
    if isinstance(node, dict):
        return {key: _moved(value, backend) for key, value in node.items()}
    if isinstance(node, list):
        return [_moved(value, backend) for value in node]
    return node


class MatrixExtractor(FeatureExtractor):
    """An extractor for matrices (samples, features) that remembers which features it was given."""

    n_features_in_: int
    feature_names_in_: list[str] | None

    LEARNED: ClassVar[Mapping[str, type | tuple[type, ...]]] = {
        "n_features_in_": int,
        "feature_names_in_": (list, type(None)),
    }

    def _sample(self, x: TensorLike) -> Tensor:
        """What `fit` is given; its number of features and their names are remembered."""
        found = data.matrix(f"{type(self).__name__}.fit", x)
        if not found.shape[0] or not found.shape[1]:
            raise ShapeError(
                f"{type(self).__name__}.fit got shape {found.shape}; "
                f"it needs at least one sample and one feature"
            )
        self._forget()
        self.n_features_in_ = found.shape[1]
        self.feature_names_in_ = data.column_names(x)
        return found.detach()

    def _home(self) -> Backend | None:
        """The backend of what was learned: data that has none goes there."""
        for value in self.__dict__.values():
            if isinstance(value, Tensor):
                return value._spec.backend
        return None

    def _matrix(self, call: str, x: TensorLike) -> Tensor:
        """What `transform` is given; an error where its features are not those of `fit`."""
        self._require_fitted(call)
        who = f"{type(self).__name__}.{call}"
        found = data.matrix(who, x, self._home())
        if found.shape[1] != self.n_features_in_:
            raise ShapeError(
                f"{who} got {found.shape[1]} features, shape {found.shape}; "
                f"fit was given {self.n_features_in_}"
            )
        names, known = data.column_names(x), self.feature_names_in_
        if names is not None and known is not None and names != known:
            raise DomainError(f"{who} got columns {names}; fit was given {known}, in this order")
        return found

    def _features(self, call: str, x: TensorLike, count: int) -> Tensor:
        """What `inverse_transform` is given."""
        self._require_fitted(call)
        who = f"{type(self).__name__}.{call}"
        found = data.matrix(who, x, self._home())
        if found.shape[1] != count:
            raise ShapeError(
                f"{who} got {found.shape[1]} features, shape {found.shape}; transform gives {count}"
            )
        return found

    def feature_names_out(self) -> list[str]:
        """The names of the columns, or x0, x1 and so on where they had none."""
        self._require_fitted("feature_names_out")
        return self.feature_names_in_ or [f"x{i}" for i in range(self.n_features_in_)]


class Pipeline(FeatureExtractor):
    """Extractors in a row: each is fitted on, and given, what the one before it gives.

    >>> from ember_ml.nn import features
    >>> both = features.standardize_features().then(features.pca(n_components=1))
    >>> both.fit_transform([[0.0, 1.0], [1.0, 3.0], [2.0, 5.0]]).shape
    (3, 1)
    """

    def __init__(self, *steps: FeatureExtractor) -> None:
        for step in steps:
            if not isinstance(step, FeatureExtractor):
                raise DTypeError(
                    f"Pipeline takes feature extractors, not {type(step).__name__}; "
                    f"derive from features.base.FeatureExtractor"
                )
        if not steps:
            raise DomainError("Pipeline takes at least one feature extractor")
        self.steps = list(steps)

    def fit(self, x: TensorLike, /) -> Self:
        """Fit each step on what the steps before it give."""
        for step in self.steps[:-1]:
            x = step.fit_transform(x)
        self.steps[-1].fit(x)
        return self

    def fit_transform(self, x: TensorLike, /, *args: Any, **options: Any) -> Tensor:
        """Fit each step, the last with the options given, and give the features."""
        for step in self.steps[:-1]:
            x = step.fit_transform(x)
        return self.steps[-1].fit_transform(x, *args, **options)

    def extract(self, data: Any, /) -> Tensor:
        """What the last step gives of what the others give."""
        for step in self.steps:
            data = step.transform(data)
        found: Tensor = data
        return found

    def inverse_transform(self, x: TensorLike, /) -> Tensor:
        """From features back to data, through all steps that can."""
        for step in reversed(self.steps):
            x = step.inverse_transform(x)
        found: Tensor = x
        return found

    def then(self, *others: FeatureExtractor) -> Pipeline:
        """These steps, and others after them."""
        return Pipeline(*self.steps, *others)

    def feature_names_out(self) -> list[str]:
        """The names that the last step gives."""
        return self.steps[-1].feature_names_out()

    @property
    def is_fitted(self) -> bool:
        """True where every step is."""
        return all(step.is_fitted for step in self.steps)

    def state_dict(self) -> dict[str, Any]:
        """The steps, which are saved by their own names."""
        return {"steps": list(self.steps)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """A pipeline of steps that were loaded."""
        return cls(*state["steps"])

    def __repr__(self) -> str:
        return f"Pipeline({', '.join(map(repr, self.steps))})"
