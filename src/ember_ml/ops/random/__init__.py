"""Random numbers: the same seed gives the same numbers on every backend.

Draws come from Philox in host memory, by a seed and the number of the call; with a key, by
Threefry over array ops, which compiled functions can hold.
"""

from ember_ml.ops.random.classes import categorical, multinomial
from ember_ml.ops.random.continuous import (
    beta,
    exponential,
    gamma,
    gumbel,
    laplace,
    normal,
    truncated_normal,
    uniform,
)
from ember_ml.ops.random.discrete import bernoulli, binomial, poisson, randint
from ember_ml.ops.random.generator import Generator
from ember_ml.ops.random.keys import fold_in, key, split
from ember_ml.ops.random.order import choice, permutation, shuffle
from ember_ml.ops.random.seeding import get_seed, get_state, set_seed, set_state, traced, use_seed

__all__ = [
    "Generator",
    "bernoulli",
    "beta",
    "binomial",
    "categorical",
    "choice",
    "exponential",
    "fold_in",
    "gamma",
    "get_seed",
    "get_state",
    "gumbel",
    "key",
    "laplace",
    "multinomial",
    "normal",
    "permutation",
    "poisson",
    "randint",
    "set_seed",
    "set_state",
    "shuffle",
    "split",
    "traced",
    "truncated_normal",
    "uniform",
    "use_seed",
]
