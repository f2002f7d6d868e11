"""GradientTape: a block in which what happens to watched tensors is recorded."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any, Final, Literal

from ember_ml import tree
from ember_ml.autodiff import runs, tape
from ember_ml.autodiff.calls import fitted, require_unit
from ember_ml.autodiff.runs import NESTING
from ember_ml.errors import DomainError, DTypeError, GradientError, UnsupportedOpError
from ember_ml.tensor.core import GradTensor, Tensor, fill, like

__all__ = ["GradientTape"]

_ACTIVE: Final[ContextVar[tuple[GradientTape, ...]]] = ContextVar("ember_ml tapes", default=())


class GradientTape:
    """A block that records what is done to tensors, so that gradients can be asked for after it.

    Tensors with `requires_grad=True` are recorded by themselves; `watch` adds others for the time
    of the block. `gradient` may be called once, or often with `persistent=True`. Called within the
    block of another tape, or of a persistent one, it is recorded too: for second derivatives.

    >>> from ember_ml import ops
    >>> x = ops.asarray([1.0, 2.0])
    >>> with GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = ops.sum(x * x)
    >>> tape.gradient(y, x).tolist(), x.requires_grad
    ([2.0, 4.0], False)
    """

    __slots__ = ("_block", "_known", "_lent", "_persistent", "_spent", "_token")

    def __init__(self, persistent: bool = False) -> None:
        self._persistent = persistent
        self._spent = False
        self._token: Token[tuple[GradientTape, ...]] | None = None
        self._block: Any = None
        # Every tensor that was watched, and the one that stands for it in the record.
        self._known: dict[int, tuple[Tensor, Tensor]] = {}
        # Those that are tensors that need gradients only until the block ends, as they were.
        self._lent: list[tuple[Tensor, Any]] = []

    def __enter__(self) -> GradientTape:
        if self._token is not None:
            raise GradientError("GradientTape is recording already: leave its block first")
        self._block = tape.enable_grad()
        self._block.__enter__()
        self._token = _ACTIVE.set((*_ACTIVE.get(), self))
        return self

    def __exit__(self, *error: Any) -> None:
        assert self._token is not None, "the block was entered"
        _ACTIVE.reset(self._token)
        self._token = None
        self._block.__exit__(*error)
        self._give_back()

    def watch(self, *tensors: Any) -> None:
        """Record, until the block ends, what is done to tensors, or to those of trees."""
        if self._token is None:
            raise GradientError("GradientTape.watch takes effect within the block of the tape only")
        found, structure = tree.flatten(tensors)
        for place, x in enumerate(found):
            if not isinstance(x, Tensor) or not x.dtype.is_inexact:
                kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
                raise DTypeError(
                    f"GradientTape.watch got {kind} at {tree.paths(structure, 'args')[place]}; "
                    f"it takes tensors of floats"
                )
            if type(x) is not GradTensor:
                self._borrow(x)
            self._known.setdefault(id(x), (x, like(x, x.native)))

    def _borrow(self, x: Tensor) -> None:
        """Make a plain tensor one that needs gradients, for the time of the block."""
        if type(x) is not Tensor or isinstance(getattr(x, "_home", None), Tensor):
            raise UnsupportedOpError(
                "GradientTape.watch got a view of another tensor, whose writes it would miss; "
                "watch that tensor, or a .copy()"
            )
        native = x.native
        if x._spec.backend.records:
            x._spec.backend.gradients.prepare()
            x._spec.backend.gradients.has_leaves = True
            x.native = x._spec.backend.gradients.alias(native)
        else:
            x._node = tape.Leaf()
        x.__class__ = GradTensor
        self._lent.append((x, native))

    def _give_back(self) -> None:
        for x, native in self._lent:
            if type(x) is not GradTensor:
                continue
            if x._spec.backend.records:
                x.native = native
            else:
                del x._node
            x.__class__ = Tensor  # type: ignore[assignment]  # both classes have the same slots
        self._lent.clear()

    def reset(self) -> None:
        """Forget what was watched and recorded so far."""
        self._give_back()
        self._known.clear()
        self._spent = False

    def stop_recording(self) -> tape.set_grad_enabled:
        """A block within that of the tape in which nothing is recorded."""
        return tape.no_grad()

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unused: Literal["error", "zero"] = "error",
    ) -> Any:
        """The gradients of a target by sources: a tensor or a tree, and so is the result.

        A target is a tensor or a tree of them: their elements are added up, each times that of
        `output_gradients` where they are given. A source on which no target depends raises
        GradientError, or has a gradient of zeros with `unused="zero"`.
        """
        targets, shape = self._targets("gradient", target)
        inputs, structure = self._sources("gradient", sources, unused)
        if output_gradients is None:
            seeds = [_ones_like(t) for t in targets]
        else:
            name = "GradientTape.gradient"
            seeds = fitted(name, "output_gradients", output_gradients, shape, targets)
        recorded: list[Tensor] = [x for x in inputs if type(x) is GradTensor]
        pulled = iter(
            runs.pulled(
                targets, seeds, recorded, create=self._is_watched(), retain=self._persistent
            )
        )
        found = [next(pulled) if type(x) is GradTensor else None for x in inputs]
        self._spent = True
        return _complete("gradient", found, inputs, structure, unused)

    def jacobian(
        self, target: Tensor, sources: Any, unused: Literal["error", "zero"] = "error"
    ) -> Any:
        """The derivatives of all elements of a target, one tensor, by those of sources."""
        from ember_ml.autodiff.derivatives import rows_of

        (one,), _ = self._targets("jacobian", target)
        inputs, structure = self._sources("jacobian", sources, unused)
        require_unit((one, *inputs), "GradientTape.jacobian")
        recorded: list[Tensor] = [x for x in inputs if type(x) is GradTensor]
        rows = iter(rows_of(one, recorded, self._is_watched()))
        found = [next(rows) if type(x) is GradTensor else None for x in inputs]
        self._spent = True
        return _complete("jacobian", found, inputs, structure, unused, one.shape)

    def _is_watched(self) -> bool:
        """True where a gradient is itself to be differentiated."""
        active = _ACTIVE.get()
        outer = any(other is not self or self._persistent for other in active)
        return tape.is_grad_enabled() and (outer or NESTING.get()[0] > 0)

    def _targets(self, method: str, target: Any) -> tuple[list[Tensor], tree.Structure]:
        if self._spent and not self._persistent:
            raise GradientError(
                f"GradientTape.{method} was called twice: what was recorded is freed by the "
                f"first call; give GradientTape(persistent=True)"
            )
        found, structure = tree.flatten(target)
        for place, t in enumerate(found):
            if not isinstance(t, Tensor) or not t.dtype.is_inexact:
                kind = t.dtype if isinstance(t, Tensor) else type(t).__name__
                where = tree.paths(structure, "target")[place]
                raise DTypeError(
                    f"GradientTape.{method} got {kind} at {where}; "
                    f"it differentiates tensors of floats"
                )
        return [self._standing(t) for t in found], structure

    def _sources(
        self, method: str, sources: Any, unused: str
    ) -> tuple[list[Tensor], tree.Structure]:
        if unused not in ("error", "zero"):
            raise DomainError(
                f"GradientTape.{method} takes unused='error' or 'zero', not {unused!r}"
            )
        found, structure = tree.flatten(sources)
        for place, x in enumerate(found):
            known = isinstance(x, Tensor) and (type(x) is GradTensor or id(x) in self._known)
            if not known and (unused == "error" or not isinstance(x, Tensor)):
                where = tree.paths(structure, "sources")[place]
                what = "was not watched" if isinstance(x, Tensor) else "is no tensor"
                raise GradientError(
                    f"GradientTape.{method}: {where} {what}; call tape.watch within the block, "
                    f"before it is used, or make it with requires_grad=True"
                )
        return [self._standing(x) for x in found], structure

    def _standing(self, x: Tensor) -> Tensor:
        if type(x) is GradTensor:
            return x
        return self._known.get(id(x), (x, x))[1]


def _ones_like(x: Tensor) -> Tensor:
    return fill(x._spec.backend.full(x.shape, 1, x._spec), x._spec)


def _complete(
    method: str,
    found: list[Tensor | None],
    inputs: list[Tensor],
    structure: tree.Structure,
    unused: str,
    ahead: tuple[int, ...] = (),
) -> Any:
    out: list[Tensor] = []
    for place, (g, x) in enumerate(zip(found, inputs, strict=True)):
        if g is None:
            if unused == "error" and x.size:
                where = tree.paths(structure, "sources")[place]
                raise GradientError(
                    f"GradientTape.{method}: the target does not depend on {where} by ops that "
                    f"have gradients and were recorded; give unused='zero' for zeros"
                )
            spec = x._spec
            g = fill(spec.backend.full(ahead + x.shape, 0, spec), spec)
        out.append(g)
    return tree.unflatten(structure, out)
