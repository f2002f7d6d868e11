"""Linear algebra over stacks of matrices: products, factorisations, solutions, norms."""

from ember_ml.ops.linearalg import (
    diagonals,
    factorisations,
    functions,
    norms,
    products,
    solving,
)
from ember_ml.ops.linearalg.diagonals import *
from ember_ml.ops.linearalg.factorisations import *
from ember_ml.ops.linearalg.functions import *
from ember_ml.ops.linearalg.matrices import matrix_of as matrix_of
from ember_ml.ops.linearalg.norms import *
from ember_ml.ops.linearalg.products import *
from ember_ml.ops.linearalg.solving import *

__all__: list[str] = []
__all__ += diagonals.__all__
__all__ += factorisations.__all__
__all__ += functions.__all__
__all__ += norms.__all__
__all__ += products.__all__
__all__ += solving.__all__
