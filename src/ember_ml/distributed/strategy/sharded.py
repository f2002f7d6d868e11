"""Sharded data parallel training: every process keeps a part of the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ember_ml import ops, tree
from ember_ml.autodiff import gradients, tape
from ember_ml.distributed.strategy import buckets
from ember_ml.distributed.strategy.data_parallel import DataParallelStrategy, _weighted
from ember_ml.distributed.strategy.sharded_keeping import regathering
from ember_ml.distributed.strategy.sharded_layout import Layout
from ember_ml.distributed.strategy.sharded_modules import (
    ShardedModule,
    engine_of,
    layouts_of,
    scope,
    shard,
    unshard,
    within,
)
from ember_ml.distributed.strategy.sharded_optimizer import (
    ShardedOptimizer,
    require_elementwise,
    shard_optimizer,
    unshard_optimizer,
)
from ember_ml.errors import DomainError, GradientError
from ember_ml.io.parts import Part, Range
from ember_ml.nn.module import Module
from ember_ml.tensor.core import Tensor
from ember_ml.training.clipping import global_norm

if TYPE_CHECKING:
    from ember_ml.training.trainer.trainer import Trainer

__all__ = ["ShardedDataParallelStrategy"]


class ShardedDataParallelStrategy(DataParallelStrategy):
    """Every process keeps a part of the weights, the gradients and the optimizer's memory.

    With n processes each keeps one n-th of them between steps. In a step, the weights of a module
    are gathered when it runs and let go afterwards, and each process gets the sum of its part of
    the gradients and updates that. The result is that of one process. When `fit` ends, all of them
    have the whole model again, unless `keep_sharded`.

    On torch, FSDP2 (`torch.distributed.fsdp.fully_shard`) does this, and divides tensors by rows.
    On the others they are divided as long rows of numbers, filled up to equal parts. The step of
    JAX is one program over a mesh with the axis "ranks": it takes the parts, gathers, and gives
    the parts of a psum_scatter; `global_arrays` shows them as NamedSharding(mesh, P("ranks")). MLX
    gathers, and takes its slice of an all_sum.

    While a model is divided, its parameters are the parts of this process; a call of the model, or
    of a module in it, gathers on every process, so all of them must make it. `model.state_dict()`
    and `optimizer.state_dict()` give whole tensors, and must be asked for by all as well.

    Optimizers whose update takes numbers one by one are taken: SGD, Adam, AdamW, Lion, Adagrad,
    RMSprop, Adadelta. Muon, LAMB and Adafactor need whole matrices, and are refused.

    >>> from ember_ml import nn, training
    >>> from ember_ml.distributed.strategy import ShardedDataParallelStrategy
    >>> model = nn.Linear(2, 1)
    >>> trainer = training.Trainer(model, "adamw", "mse", strategy=ShardedDataParallelStrategy())
    >>> history = trainer.fit((ops.ones((4, 2)), ops.ones((4, 1))), verbose=0)
    >>> model.weight.shape
    (1, 2)
    """

    def __init__(self, *args: Any, keep_sharded: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self.keep_sharded = keep_sharded
        # How tensors of a checkpoint are divided, by their names in it.
        self._named: dict[str, Layout] = {}
        self._is_divided = False

    # --- Dividing and uniting -----------------------------------------------------------------

    def begin(self, trainer: Trainer) -> None:
        """Join; all ranks have the model of rank 0, whole."""
        require_elementwise(trainer.optimizer)
        self._unite(trainer)
        super().begin(trainer)

    def enter(self, trainer: Trainer) -> None:
        """Let each rank keep its parts of the model and of the optimizer's memory."""
        communicator = self.communicator
        if communicator.world_size == 1:
            return
        if communicator.backend == "torch" and trainer.stepper.is_compiled:
            raise DomainError(
                "ShardedDataParallelStrategy on torch takes no Trainer(jit=True): FSDP2 gathers by "
                "hooks, which a compiled step would not run; leave jit='auto'"
            )
        found = shard(trainer.model, communicator)
        shard_optimizer(trainer.optimizer, found, communicator)
        self._is_divided = True
        self._named = {
            f"model.{name}": layout for name, layout in layouts_of(trainer.model).items()
        }
        divided = trainer.optimizer.__dict__["_divided"]
        self._named |= {f"optimizer.state.{name}": layout for name, layout in divided.named.items()}

    def leave(self, trainer: Trainer) -> None:
        """Let all ranks have the whole model and the whole memory of the optimizer."""
        if not self.keep_sharded:
            self._unite(trainer)

    def _unite(self, trainer: Trainer) -> None:
        if isinstance(trainer.model, ShardedModule):
            unshard(trainer.model)
            unshard_optimizer(trainer.optimizer)
        self._is_divided = False

    def within(self, model: Module, function: Callable[[], Any]) -> Any:
        """Call a function in which the parameters of the model are whole."""
        return within(model, function) if isinstance(model, ShardedModule) else function()

    def global_arrays(self, model: Module) -> dict[str, Any]:
        """On JAX, the parts of all ranks as one array each, by name, without a copy.

        Each is a long row of NamedSharding(mesh, P("ranks")), filled up with zeros at its end.
        """
        if self.communicator.backend != "jax" or not isinstance(model, ShardedModule):
            raise DomainError(
                f"ShardedDataParallelStrategy.global_arrays takes a model on JAX while it "
                f"is divided; this one is on '{self.communicator.backend}', or it is whole"
            )
        from ember_ml.backend.jax.ranks import spread

        state, layouts = model.part_state(), layouts_of(model)
        return {name: spread(state[name].native) for name in layouts if name in state}

    # --- A step -------------------------------------------------------------------------------

    def value_and_grad(
        self, loss_of: Callable[[Any], Any], model: Module, share: Tensor | None
    ) -> tuple[Any, Any]:
        """`((scaled loss, (loss, outcome)), gradients)`: of gradients, the parts of this rank."""
        if share is None or not isinstance(model, ShardedModule):
            return super().value_and_grad(loss_of, model, share)

        def part_of(model: Any) -> tuple[Tensor, Any]:
            scaled, aux = loss_of(model)
            return scaled * share.astype(scaled.dtype, copy=False), aux

        (scaled, (loss, outcome)), grads = self.part_value_and_grad(part_of, model)
        numbers = _weighted([loss, *outcome.values.values()], share)
        found = buckets.summed(self.communicator, numbers)
        values = dict(zip(outcome.values, found[1:], strict=True))
        return (scaled, (found[0], outcome._replace(values=values))), grads

    def part_value_and_grad(
        self, loss_of: Callable[[Any], Any], model: Module
    ) -> tuple[tuple[Tensor, Any], Any]:
        """`((loss, aux), gradients)`: gradients are summed over ranks, the loss is not."""
        if not isinstance(model, ShardedModule):
            return super().part_value_and_grad(loss_of, model)
        engine = engine_of(model)
        if engine is not None:
            leaves, structure = tree.flatten(model)
            loss, aux, grads = engine.value_and_grad(lambda: loss_of(model), leaves)
            _require_all(model, leaves, grads)
            return (loss, aux), tree.unflatten(structure, grads)
        found: tuple[tuple[Tensor, Any], Any]
        with scope() as gathering:

            def inner(model: Any) -> Any:
                with gathering.call(None), regathering(gathering, self.communicator):
                    gathering.prepare(model)
                    return loss_of(model)

            found = gradients.value_and_grad(inner, has_aux=True)(model)
        return found

    def sum(self, tensors: Sequence[Tensor], numbers: Sequence[Tensor]) -> Any:
        """Gradients as they are, where each rank has the sum of its parts; numbers summed."""
        if not self._is_divided:
            return super().sum(tensors, numbers)
        return list(tensors), buckets.summed(self.communicator, numbers)

    def clipped(self, grads: Any, max_norm: float) -> Any:
        """Gradients of which the norm over all ranks is at most so much."""
        if not isinstance(grads, ShardedModule):
            return super().clipped(grads, max_norm)
        with tape.no_grad():
            own = global_norm(grads)
            norm = ops.sqrt(self._total(own * own))
            scale = ops.minimum(max_norm / (norm + 1e-6), 1.0)
            return tree.map(lambda g: g * ops.astype(scale, g.dtype, copy=False), grads)

    def is_surely_finite(self) -> bool:
        """Never, while each rank looks at its parts."""
        return not self._is_divided and super().is_surely_finite()

    def all_true(self, fine: Tensor) -> Tensor:
        """Whether the parts of all ranks are finite."""
        if not self._is_divided:
            return fine
        bad = ops.astype(ops.logical_not(fine), "float32")
        return ops.equal(self._total(bad), 0.0)

    def _total(self, x: Tensor) -> Tensor:
        return self.communicator._reduced(x, "sum", self.communicator._total)

    # --- Checkpoints --------------------------------------------------------------------------

    def checkpoint_state(self, trainer: Trainer) -> dict[str, Any]:
        """The states of "model" and "optimizer", with the parts of this rank."""
        model, optimizer = trainer.model, trainer.optimizer
        if not isinstance(model, ShardedModule):
            return super().checkpoint_state(trainer)
        rank = self.communicator.rank
        state = model.part_state()
        kept = optimizer.part_state()

        def part(name: str, x: Tensor) -> Any:
            layout = self._named.get(name)
            if layout is None:
                return x
            first, last = layout.span(rank)
            flat = ops.reshape(x.detach(), (-1,))[: last - first]
            return Part(flat, layout.shape, axis=None, start=first)

        kept["state"] = {
            name: {
                key: x if key == "step" else part(f"optimizer.state.{name}", x)
                for key, x in one.items()
            }
            for name, one in kept["state"].items()
        }
        return {
            "model": {name: part(f"model.{name}", x) for name, x in state.items()},
            "optimizer": kept,
        }

    def wanted(self, name: str, shape: tuple[int, ...]) -> Range | None:
        """The elements of a tensor that this rank loads; None for all of it."""
        layout = self._layout_of(name)
        if layout is None or layout.shape != tuple(shape):
            return None
        return Range(None, *layout.span(self.communicator.rank))

    def _layout_of(self, name: str) -> Layout | None:
        if name.startswith("optimizer.state."):
            name, _, key = name.rpartition(".")
            if key == "step":
                return None
        return self._named.get(name)

    def load_checkpoint_state(self, trainer: Trainer, state: Mapping[str, Any]) -> None:
        """Take what this rank wanted."""
        if not isinstance(trainer.model, ShardedModule):
            super().load_checkpoint_state(trainer, state)
            return
        rank = self.communicator.rank

        def part(name: str, x: Any) -> Any:
            layout = self._layout_of(name)
            return x if layout is None or x.ndim != 1 else layout.filled(x, rank)

        kept = dict(state["optimizer"])
        kept["state"] = {
            name: {key: part(f"optimizer.state.{name}.{key}", x) for key, x in one.items()}
            for name, one in kept["state"].items()
        }
        trainer.model.load_part_state(
            {name: part(f"model.{name}", x) for name, x in state["model"].items()}
        )
        assert isinstance(trainer.optimizer, ShardedOptimizer)
        trainer.optimizer.load_part_state(kept)


def _require_all(model: Module, leaves: Sequence[Tensor], grads: Sequence[Tensor | None]) -> None:
    """Raise where a parameter has no gradient, as it is in one process."""
    unused = {id(x) for x, g in zip(leaves, grads, strict=True) if g is None}
    if unused:
        name = next(name for name, x in model.named_parameters() if id(x) in unused)
        raise GradientError(
            f"ShardedDataParallelStrategy: the loss does not depend on '{name}' by ops that have "
            f"gradients; freeze it, or use it"
        )
