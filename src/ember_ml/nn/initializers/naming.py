"""Initializers by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ember_ml.errors import DomainError, DTypeError
from ember_ml.nn.initializers.base import Initializer
from ember_ml.nn.initializers.hosted import Orthogonal
from ember_ml.nn.initializers.plain import (
    Constant,
    Dirac,
    Identity,
    Normal,
    Ones,
    TruncatedNormal,
    Uniform,
    Zeros,
)
from ember_ml.nn.initializers.scaled import (
    GlorotNormal,
    GlorotUniform,
    HeNormal,
    HeUniform,
    LecunNormal,
    LecunUniform,
    UniformFan,
    VarianceScaling,
)

__all__ = ["get"]

# Sparse is not among them: it has no default.
_BY_NAME: Final[Mapping[str, type[Initializer]]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower(): cls
    for cls in (
        Constant,
        Dirac,
        GlorotNormal,
        GlorotUniform,
        HeNormal,
        HeUniform,
        Identity,
        LecunNormal,
        LecunUniform,
        Normal,
        Ones,
        Orthogonal,
        TruncatedNormal,
        Uniform,
        UniformFan,
        VarianceScaling,
        Zeros,
    )
} | {
    "xavier_uniform": GlorotUniform,
    "xavier_normal": GlorotNormal,
    "kaiming_uniform": HeUniform,
    "kaiming_normal": HeNormal,
}


def get(name: str | Initializer | None, /) -> Initializer | None:
    """The initializer of a name, with its defaults; an initializer, or None, is itself.

    >>> get("glorot_uniform")
    GlorotUniform(gain=1.0)
    """
    if name is None or isinstance(name, Initializer):
        return name
    if not isinstance(name, str):
        raise DTypeError(
            f"nn.initializers.get takes a name or an initializer, not {type(name).__name__}"
        )
    found = _BY_NAME.get(name)
    if found is None:
        raise DomainError(f"no initializer is called {name!r}; there are {', '.join(_BY_NAME)}")
    made: Initializer = found()
    return made
