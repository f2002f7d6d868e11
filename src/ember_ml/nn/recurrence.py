"""One recurrent layer over all steps of a sequence: one kernel, and one entry on the tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ember_ml import dtypes
from ember_ml.autodiff import tape
from ember_ml.backend.portable.recurrent import WEIGHTS
from ember_ml.ops import dispatch
from ember_ml.ops.explain import explain
from ember_ml.tensor import convert
from ember_ml.tensor.core import Tensor, fill

__all__ = ["recurrent"]

_KERNEL: Final = "recurrent"


def recurrent(
    who: str,
    kind: str,
    x: Tensor,
    h0: Tensor,
    c0: Tensor | None,
    mask: Tensor | None,
    weights: Sequence[Sequence[Tensor | None]],
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The outputs of all steps and the last state, `(out, h, c)`.

    Shapes and weights are as in backend/portable/recurrent.py. 16-bit floats are computed in
    float32 and rounded once.
    """
    flat: list[Tensor | None] = [w for own in weights for w in own]
    flat += [None] * (2 * WEIGHTS - len(flat))
    inputs = (x, h0, c0, *flat)
    dtype = dtypes.common([t.dtype for t in inputs if t is not None], who)
    run = dtypes.float32 if dtype.itemsize < 4 else dtype
    given = [None if t is None else convert.cast(t, run) for t in inputs]
    spec, natives, taped = dispatch.operands(who, *[t for t in given if t is not None])
    if mask is not None:
        dispatch.same_device(who, spec.device, mask.device)
    found = iter(natives)
    ordered: list[Any] = [None if t is None else next(found) for t in given]
    ordered.insert(3, None if mask is None else mask.native)
    kernel, _ = spec.backend.entry(spec, _KERNEL)
    keep = bool(taped) and not spec.backend.records and tape.is_grad_enabled()
    try:
        out, h, c, kept = kernel(*ordered, kind, keep)
    except Exception as error:
        raise explain(who, error, tuple(t for t in given if t is not None)) from error
    results = [out, h] if c is None else [out, h, c]
    if taped:
        tensors = iter(taped)
        recorded: list[Tensor | None] = [None if t is None else next(tensors) for t in given]
        recorded.insert(3, mask)
        made = tape.recorded_many(_KERNEL, [(n, spec) for n in results], recorded, (kind, kept))
    else:
        made = tuple(fill(n, spec) for n in results)
    cast = [convert.cast(t, dtype) for t in made]
    return cast[0], cast[1], None if c is None else cast[2]
