"""Control flow that compiles: batching, loops, branches.

Functions take and give trees: tensors in nested tuples, lists, dicts, named tuples (see
`ember_ml.tree`). Where a condition can be read, Python branches and loops on every backend, with
errors and gradients as anywhere; where it is traced, the engine's own control flow is used.
"""

from ember_ml.ops.control import batching, branching, looping, scanning
from ember_ml.ops.control.batching import *
from ember_ml.ops.control.branching import *
from ember_ml.ops.control.looping import *
from ember_ml.ops.control.scanning import *

__all__: list[str] = []
__all__ += batching.__all__
__all__ += branching.__all__
__all__ += looping.__all__
__all__ += scanning.__all__
