"""Principal components: the directions in which samples vary most."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

import numpy as np

from ember_ml import dtypes, ops
from ember_ml.errors import DomainError, DTypeError, ShapeError
from ember_ml.features.base import MatrixExtractor
from ember_ml.features.data import check_finite
from ember_ml.features.moments import centered, widened
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor
from ember_ml.typing import TensorLike

__all__ = ["PCA", "Components", "Solver", "pca"]

# How many: all, a number, the share of the variance to keep, or as many as the data tell.
Components = int | float | Literal["mle"] | None
Solver = Literal["auto", "full", "covariance", "randomized"]

_SOLVERS: Final = ("auto", "full", "covariance", "randomized")
_LARGE: Final = 1000  # up to here, an exact factorisation takes less than a second or two
_OVERSAMPLES: Final = 10


class _Spectrum(NamedTuple):
    """Directions as rows, by falling variance; `total` is the variance in all directions."""

    vectors: Tensor
    variances: Tensor
    total: Tensor


class PCA(MatrixExtractor):
    """Samples in the coordinates of their principal components.

    `n_components` is a number, a share of the variance between 0 and 1, "mle" (Minka's estimate)
    or None for all. `whiten` divides each coordinate by its standard deviation. `center=False`
    takes the samples as they are. The solvers "full" and "covariance" are exact; "randomized"
    (Halko, Martinsson and Tropp, 2011) is for few components of large data, repeatable by `seed`,
    and all that "auto" leaves to it are matrices of more than 1,000 rows and columns.

    After `fit`: `components_` (rows are directions; in each, the entry largest in size is
    positive), `explained_variance_`, `explained_variance_ratio_`, `singular_values_`, `mean_`,
    `noise_variance_`, `n_components_`, `n_samples_`. What is learned is float64, where the device
    has it; what is transformed keeps its dtype.

    >>> from ember_ml.nn import features
    >>> x = ops.asarray([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    >>> pca = features.pca().fit(x, n_components=1)
    >>> ops.round(pca.components_ * 1e4).tolist(), pca.transform(x).shape
    ([[7071.0, 7071.0]], (3, 1))
    """

    OPTIONS = ("n_components", "whiten", "center", "svd_solver", "seed")
    LEARNED: ClassVar[Any] = {
        **MatrixExtractor.LEARNED,
        "n_components_": int,
        "n_samples_": int,
        "mean_": Tensor,
        "components_": Tensor,
        "explained_variance_": Tensor,
        "explained_variance_ratio_": Tensor,
        "singular_values_": Tensor,
        "noise_variance_": float,
    }

    n_components_: int
    n_samples_: int
    mean_: Tensor
    components_: Tensor
    explained_variance_: Tensor
    explained_variance_ratio_: Tensor
    singular_values_: Tensor
    noise_variance_: float

    def __init__(
        self,
        n_components: Components = None,
        *,
        whiten: bool = False,
        center: bool = True,
        svd_solver: Solver = "auto",
        seed: int = 0,
    ) -> None:
        self.n_components: Components = n_components
        self.whiten = whiten
        self.center = center
        self.svd_solver: Solver = svd_solver
        self.seed = seed
        _check_solver(svd_solver)

    def fit(
        self,
        x: TensorLike,
        /,
        n_components: Components = None,
        *,
        whiten: bool | None = None,
        center: bool | None = None,
        svd_solver: Solver | None = None,
        seed: int | None = None,
    ) -> Self:
        """Learn the components of the samples `x`; options given here stay."""
        self.n_components = self.n_components if n_components is None else n_components
        self.whiten = self.whiten if whiten is None else whiten
        self.center = self.center if center is None else center
        self.svd_solver = self.svd_solver if svd_solver is None else svd_solver
        self.seed = self.seed if seed is None else seed
        _check_solver(self.svd_solver)
        sample = self._sample(x)
        samples, features = sample.shape
        if samples < 2:
            raise ShapeError(f"PCA.fit got shape {sample.shape}; variance needs two samples")
        check_finite("PCA.fit", sample)
        asked = _checked(self.n_components, samples, features)
        wide = widened(sample)
        self.mean_ = ops.mean(wide, axis=0) if self.center else ops.zeros_like(wide[0])
        self._learn(_spectrum(wide - self.mean_, asked, self.svd_solver, self.seed), asked, samples)
        return self

    def _learn(self, found: _Spectrum, asked: Components, samples: int) -> None:
        variances = found.variances
        total = float(found.total.item())
        ratio = variances / total if total > 0 else ops.zeros_like(variances)
        count = _count(asked, variances, ratio, samples)
        rank = min(samples, self.n_features_in_)
        kept = variances[:count]
        self.n_samples_ = samples
        self.n_components_ = count
        self.components_ = _signed(found.vectors[:count])
        self.explained_variance_ = kept
        self.explained_variance_ratio_ = ratio[:count]
        self.singular_values_ = ops.sqrt(kept * float(samples - 1))
        rest = max(total - float(ops.sum(kept).item()), 0.0)
        if count < rank and variances.shape[0] == rank:
            rest = float(ops.sum(variances[count:]).item())  # no digits lost in a difference
        self.noise_variance_ = rest / (rank - count) if count < rank else 0.0

    def _spread(self, dtype: dtypes.DType) -> Tensor:
        """The standard deviation of each coordinate; directions without any stay near zero."""
        spread = ops.sqrt(self.explained_variance_)
        least = ops.full_like(spread, ops.finfo(spread.dtype).eps)
        return convert.cast(ops.maximum(spread, least), dtype)

    def extract(self, data: TensorLike, /) -> Tensor:
        """The coordinates of the samples `data`."""
        x = self._matrix("transform", data)
        directions = ops.matrix_transpose(convert.cast(self.components_, x.dtype))
        found = ops.matmul(centered(x, self.mean_) if self.center else x, directions)
        return found / self._spread(x.dtype) if self.whiten else found

    def inverse_transform(self, x: TensorLike, /) -> Tensor:
        """The samples that have the coordinates `x`, as near as the components come."""
        self._require_fitted("inverse_transform")
        found = self._features("inverse_transform", x, self.n_components_)
        if self.whiten:
            found = found * self._spread(found.dtype)
        found = ops.matmul(found, convert.cast(self.components_, found.dtype))
        return centered(found, -self.mean_) if self.center else found

    def feature_names_out(self) -> list[str]:
        """The names pca0, pca1 and so on."""
        self._require_fitted("feature_names_out")
        return [f"pca{i}" for i in range(self.n_components_)]


def _check_solver(solver: str) -> None:
    if solver not in _SOLVERS:
        raise DomainError(f"PCA has the solvers {', '.join(_SOLVERS)}, not {solver!r}")


def _checked(asked: Components, samples: int, features: int) -> Components:
    """n_components, as far as the shape alone can tell that it is wrong."""
    most = min(samples, features)
    if asked is None:
        return most
    if isinstance(asked, str):
        if asked != "mle":
            raise DomainError(f"PCA got n_components={asked!r}; the only text is 'mle'")
        if samples < features:
            raise DomainError(
                f"PCA got n_components='mle' for shape {(samples, features)}; "
                f"it needs as many samples as features"
            )
        return asked
    if isinstance(asked, bool) or not isinstance(asked, int | float | np.integer | np.floating):
        raise DTypeError(f"PCA takes n_components as a number, 'mle' or None, not {asked!r}")
    if isinstance(asked, int | np.integer):
        if not 1 <= asked <= most:
            raise DomainError(
                f"PCA got n_components={asked} for shape {(samples, features)}; "
                f"it has 1 to {most} components"
            )
        return int(asked)
    if not 0.0 < asked < 1.0:
        raise DomainError(
            f"PCA got n_components={asked}; a float is a share of the variance, between 0 and 1"
        )
    return float(asked)


def _count(asked: Components, variances: Tensor, ratio: Tensor, samples: int) -> int:
    if isinstance(asked, int):
        return asked
    if not isinstance(asked, float):  # "mle"
        return _most_likely(variances.numpy().astype(np.float64), samples)
    running = np.cumsum(ratio.numpy().astype(np.float64))
    return min(int(np.searchsorted(running, asked, side="right")) + 1, len(running))


# --- Solvers --------------------------------------------------------------------------------


def _spectrum(x: Tensor, asked: Components, solver: str, seed: int) -> _Spectrum:
    samples, features = x.shape
    if solver == "auto":
        solver = _chosen(x, asked)
    if solver == "randomized":
        if not isinstance(asked, int):
            raise DomainError(
                f"PCA(svd_solver='randomized') takes n_components as a number, not {asked!r}"
            )
        values, vectors = _randomized(x, asked, seed)
        total = ops.sum(x * x) / float(samples - 1)
        return _Spectrum(vectors, values * values / float(samples - 1), total)
    if solver == "covariance":
        found = ops.linalg.eigh(ops.matmul(ops.matrix_transpose(x), x) / float(samples - 1))
        # They rise; of more features than samples, the rest are zeros.
        most = min(samples, features)
        variances = ops.flip(found.eigenvalues)[:most]
        variances = ops.maximum(variances, ops.zeros_like(variances))
        vectors = ops.flip(ops.matrix_transpose(found.eigenvectors), axis=0)[:most]
    else:
        factors = ops.linalg.svd(x, full_matrices=False)
        variances = factors.S * factors.S / float(samples - 1)
        vectors = factors.Vh
    return _Spectrum(vectors, variances, ops.sum(variances))


def _chosen(x: Tensor, asked: Components) -> str:
    samples, features = x.shape
    # Squares halve the digits: float64 has enough of them, float32 has not.
    if features <= _LARGE and samples >= 10 * features and x.dtype is dtypes.float64:
        return "covariance"
    if min(samples, features) > _LARGE and isinstance(asked, int):
        return "randomized" if asked <= min(samples, features) // 10 else "full"
    return "full"


def _randomized(x: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The largest singular values, and their right vectors as rows."""
    if x.shape[0] < x.shape[1]:
        values, left = _randomized_range(ops.matrix_transpose(x), count, seed, right=False)
        return values, left
    return _randomized_range(x, count, seed, right=True)


def _randomized_range(x: Tensor, count: int, seed: int, *, right: bool) -> tuple[Tensor, Tensor]:
    columns = x.shape[1]
    width = min(count + _OVERSAMPLES, columns)
    # From the host, so that the same seed gives the same directions on every backend.
    draws = np.random.Generator(np.random.Philox(seed)).normal(size=(columns, width))
    start = convert.cast(convert.to_tensor(draws, x._spec.backend), x.dtype)
    back = ops.matrix_transpose(x)
    basis = ops.linalg.qr(ops.matmul(x, start.to_device(x.device))).Q
    for _ in range(7 if count < 0.1 * columns else 4):
        basis = ops.linalg.qr(ops.matmul(back, basis)).Q
        basis = ops.linalg.qr(ops.matmul(x, basis)).Q
    small = ops.linalg.svd(ops.matmul(ops.matrix_transpose(basis), x), full_matrices=False)
    if right:
        return small.S[:count], small.Vh[:count]
    return small.S[:count], ops.matrix_transpose(ops.matmul(basis, small.U))[:count]


def _signed(vectors: Tensor) -> Tensor:
    """Rows whose entry largest in size is positive: solvers leave signs to chance."""
    place = ops.argmax(ops.abs(vectors), axis=1, keepdims=True)
    largest = ops.take_along_axis(vectors, place, axis=1)
    return ops.where(largest < 0, -vectors, vectors)


def _most_likely(variances: np.ndarray[Any, Any], samples: int) -> int:
    """The number of components that is most probable (Minka, 2000)."""
    if len(variances) == 1:
        return 1
    return 1 + max(range(len(variances) - 1), key=lambda k: _evidence(variances, k + 1, samples))


def _evidence(variances: np.ndarray[Any, Any], rank: int, samples: int) -> float:
    """Laplace's estimate of the log probability of data, given a number of components."""
    features = len(variances)
    kept = variances[:rank]
    if kept[-1] < np.finfo(np.float64).eps:  # a direction that the data do not have
        return -math.inf
    noise = max(float(variances[rank:].mean()), float(np.finfo(np.float64).eps))
    dims = features - np.arange(rank)
    uniform = -rank * math.log(2.0) + sum(
        math.lgamma(d / 2.0) - d / 2.0 * math.log(math.pi) for d in dims.tolist()
    )
    likelihood = -samples / 2.0 * (float(np.log(kept).sum()) + (features - rank) * math.log(noise))
    free = features * rank - rank * (rank + 1) / 2.0
    flattened = np.concatenate([kept, np.full(features - rank, noise)])
    # The curvature of the likelihood at its top, over pairs of a kept direction and a later one.
    first, later = np.triu_indices(features, 1)
    first, later = first[first < rank], later[first < rank]
    curvature = (variances[first] - variances[later]) * (
        1.0 / flattened[later] - 1.0 / flattened[first]
    )
    # Equal variances have no curvature between them, and nothing to say.
    volume = float(np.log(curvature[curvature > 0]).sum()) + len(first) * math.log(samples)
    return (
        uniform
        + likelihood
        + math.log(2.0 * math.pi) * (free + rank) / 2.0
        - volume / 2.0
        - rank * math.log(samples) / 2.0
    )


def pca(
    n_components: Components = None,
    *,
    whiten: bool = False,
    center: bool = True,
    svd_solver: Solver = "auto",
    seed: int = 0,
) -> PCA:
    """A PCA that is not fitted yet.

    >>> from ember_ml.nn import features
    >>> features.pca().fit_transform([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]], n_components=1).tolist()
    [[-2.0], [0.0], [2.0]]
    """
    return PCA(n_components, whiten=whiten, center=center, svd_solver=svd_solver, seed=seed)
