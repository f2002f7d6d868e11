"""How the ranks of a run begin: with the same model, the same weights and the same seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ember_ml.autodiff import tape
from ember_ml.distributed.communicator import Communicator
from ember_ml.distributed.strategy import exchange
from ember_ml.errors import BackendMismatchError, DomainError
from ember_ml.nn.module import Module
from ember_ml.ops import random
from ember_ml.ops.random.generator import Generator
from ember_ml.tensor.core import Tensor
from ember_ml.training.optimizers.applying import write

if TYPE_CHECKING:
    from ember_ml.training.trainer.trainer import Trainer

__all__ = ["asked", "begin", "broadcast", "settle_loader"]


def begin(communicator: Communicator, trainer: Trainer) -> None:
    """Compare the models of all ranks, and give all of them what rank 0 has."""
    home = trainer.stepper.home.backend.name
    if communicator.backend != home:
        raise BackendMismatchError(
            f"the strategy has joined on '{communicator.backend}', and the model is on '{home}'; "
            f"call em.set_backend({home!r}) first, or give the strategy "
            f"em.distributed.initialize({home!r})"
        )
    if communicator.world_size == 1:
        return
    model = trainer.model
    _compare(exchange.gather(communicator, _described(model)))
    broadcast(communicator, [*model.parameters(), *model.buffers()])
    _share_seeds(communicator, model)


def _described(model: Module) -> list[list[Any]]:
    named = [*model.named_parameters(), *model.named_buffers()]
    trainable = {id(x) for x in model.trainable_parameters()}
    return [[name, list(x.shape), x.dtype.name, id(x) in trainable] for name, x in named]


def _compare(models: list[list[list[Any]]]) -> None:
    first = models[0]
    for rank, other in enumerate(models):
        if other == first:
            continue
        for one, two in zip(first, other, strict=False):
            if one != two:
                raise DomainError(
                    f"the ranks of a run must have the same model: rank 0 has {_told(one)}, and "
                    f"rank {rank} has {_told(two)}"
                )
        raise DomainError(
            f"the ranks of a run must have the same model: rank 0 has {len(first)} parameters and "
            f"buffers, and rank {rank} has {len(other)}"
        )


def _told(one: list[Any]) -> str:
    name, shape, dtype, trainable = one
    return f"'{name}' {dtype} {tuple(shape)}{'' if trainable else ', not trained'}"


def broadcast(communicator: Communicator, tensors: Sequence[Tensor]) -> None:
    """Write the values of rank 0 over the tensors of all ranks."""
    with tape.no_grad():
        for x in tensors:
            found = communicator._run(communicator._broadcast, x, 0)
            if communicator.rank:
                write(x, found)


def _share_seeds(communicator: Communicator, model: Module) -> None:
    """Let random numbers of all ranks go on from where those of rank 0 are."""
    own = [value for one in model.modules() for value in vars(one).values()]
    generators = [value for value in own if isinstance(value, Generator)]
    states = {"global": random.get_state(), "own": [one.get_state() for one in generators]}
    first = exchange.gather(communicator, states)[0]
    random.set_state(first["global"])
    for one, state in zip(generators, first["own"], strict=True):
        one.set_state(state)


def settle_loader(communicator: Communicator, loader: Any) -> None:
    """Compare what the ranks go through, and let the order be that of rank 0."""
    if communicator.world_size == 1:
        return
    facts = {
        "samples": loader.samples,
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "shuffle": loader.shuffle,
    }
    found = exchange.gather(communicator, {"facts": facts, "state": loader.state_dict()})
    for rank, one in enumerate(found):
        if one["facts"] != found[0]["facts"]:
            raise DomainError(
                f"the ranks of a run must have the same data: rank 0 has {found[0]['facts']}, and "
                f"rank {rank} has {one['facts']}; each rank takes its part of every batch by itself"
            )
    loader.seed = found[0]["state"]["seed"]
    loader.epoch = found[0]["state"]["epoch"]


def asked(communicator: Communicator, flags: Sequence[bool]) -> Callable[[], list[bool]]:
    """Begin to ask the other ranks; what is given waits, and tells what any rank says."""
    if communicator.world_size == 1:
        return lambda: list(flags)
    backend = communicator._backend
    from ember_ml import dtypes
    from ember_ml.distributed.communicator import spec_of

    spec = spec_of(backend, dtypes.float32)
    native = backend.from_numpy(np.array(flags, np.float32), spec, True)
    pending = communicator.start_sum([native])

    def wait() -> list[bool]:
        (total,) = pending.wait()
        return [value > 0 for value in np.asarray(backend.to_numpy(total)).tolist()]

    return wait
