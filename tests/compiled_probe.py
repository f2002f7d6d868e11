"""What a program sees of the core, as JSON: run on both forms by test_compiled.py."""

import copy
import gc
import inspect
import json
import pickle
import sys
import traceback
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import ember_ml as em
from ember_ml import compiled, nn, ops
from ember_ml.tensor.core import Tensor

# What only one form has, and nobody is to use.
OWN = {"__deletable__", "__internal_mypyc_setup", "__mypyc_attrs__"}
SLOTS = ("_home", "_node", "_role", "native", "_spec")


class Mine(Tensor):
    """A subclass as users write them."""

    __slots__ = ()

    def __new__(cls, data: Any) -> Any:
        made = Tensor(data)
        made.__class__ = cls
        return made

    def __add__(self, other: Any) -> Any:
        return "mine"

    def double(self) -> Any:
        return self * 2


def signature(function: Any) -> str:
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError) as error:
        return type(error).__name__


def error_of(function: Callable[[], Any]) -> Any:
    try:
        function()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[1:]
        return {
            "class": type(error).__name__,
            "text": str(error),
            "cause": type(error.__cause__).__name__,
            "suppressed": error.__suppress_context__,
            "frames": [[frame.name, frame.lineno, frame.line] for frame in frames],
        }
    return None


def looks() -> dict[str, Any]:
    methods = {name: getattr(Tensor, name) for name in sorted(set(dir(Tensor)) - OWN)}
    functions = {name: getattr(ops, name) for name in ops.__all__}
    return {
        "names": list(methods),
        "signatures": {n: signature(m) for n, m in methods.items() if callable(m)},
        "docs": {name: method.__doc__ for name, method in methods.items() if name != "__doc__"},
        "ops": {
            name: [signature(f), f.__doc__, type(f).__name__]
            for name, f in functions.items()
            if inspect.isroutine(f)
        },
        "others": {
            # The annotations of a compiled class are known to type checkers alone.
            f"{module.__name__}.{name}": [
                list(inspect.signature(f).parameters) if isinstance(f, type) else signature(f),
                f.__doc__,
                type(f).__name__,
            ]
            for module in (em.tree, em.autodiff)
            for name in module.__all__
            if callable(f := getattr(module, name)) and f is not Any
        },
        "mro": [c.__name__ for c in Tensor.__mro__],
        "repr": [repr(Tensor), Tensor.__module__, Tensor.__qualname__],
        "dict": hasattr(ops.ones(1), "__dict__"),
    }


def trees() -> list[Any]:
    """What a structure is to those who hold one."""
    given = {"b": [1, (2, None)], "a": OrderedDict(x=3)}
    leaves, structure = em.tree.flatten(given)
    back = pickle.loads(pickle.dumps(structure))
    other = em.tree.structure({"b": [1, [2, None]], "a": OrderedDict(x=3)})
    return [
        leaves,
        repr(structure),
        em.tree.unflatten(back, leaves) == given,
        [back == structure, hash(back) == hash(structure), other == structure, structure == 3],
        pickle.loads(pickle.dumps(em.tree.LEAF)) is em.tree.LEAF,
        em.tree.difference(structure, other),
        copy.deepcopy(structure) == structure,
    ]


def wrong_calls(x: Tensor) -> list[Callable[[], Any]]:
    """Derivatives that cannot be taken."""
    whole = x.astype("int64")
    return [
        lambda: em.grad(ops.sum)(whole),
        lambda: em.grad(ops.sum)("a"),
        lambda: em.grad(lambda x: x)(x),
        lambda: em.grad(lambda x: "a")(x),
        lambda: em.grad(lambda x: ops.sum(ops.ones(2)))(x),
        lambda: em.grad(ops.sum, argnums=3)(x),
        lambda: em.grad(ops.sum, argnums="a")(x),
        lambda: em.value_and_grad(ops.sum, has_aux=True)(x),
        lambda: em.grad(lambda x: 1 / 0)(x),
        lambda: em.vjp(ops.sin, x)[1](ops.ones(4)),
        lambda: em.tree.unflatten(em.tree.structure([1]), [1, 2]),
    ]


def is_freed(make: Callable[[], Any]) -> bool:
    kept = make()
    gone = weakref.ref(kept[0])
    del kept
    gc.collect()
    return gone() is None


def cycle(x: Tensor) -> list[Any]:
    kept: list[Any] = [x * 1]
    kept.append(kept)
    return kept


def behaviour() -> dict[str, Any]:
    x = ops.asarray([1.0, 2.0, 3.0])
    whole = ops.asarray([1, 2])
    mine = Mine([1.0, 2.0])
    leaf: Any = nn.tensor.array([1.0, 2.0], requires_grad=True)
    (leaf * leaf).sum().backward()
    back = pickle.loads(pickle.dumps(x))
    twin = copy.deepcopy(nn.Parameter([1.0, 2.0]))
    view = (base := x.copy())[1:]
    view += 1.0
    operators: list[Callable[[], Any]] = [
        lambda: x + 1,
        lambda: 1 - x,
        lambda: x**2,
        lambda: 2**x,
        lambda: x @ x,
        lambda: -x,
        lambda: +x,
        lambda: abs(-x),
        lambda: divmod(x, 2.0),
        lambda: divmod(7.0, x),
        lambda: round(x),
        lambda: x < 2,
        lambda: x == x,
        lambda: x != 1,
        lambda: 3.0 // x,
        lambda: 1.0 / x,
        lambda: x % 2,
        lambda: ops.asarray([True]) & True,
        lambda: 1 << whole,
        lambda: ~whole,
        lambda: [1.0, 2.0, 3.0] + x,  # noqa: RUF005 - a sum
    ]
    mistakes: list[Callable[[], Any]] = [
        lambda: x + ops.ones(4),
        lambda: ops.sum(x, axis=3),
        lambda: ops.add(x, "a"),
        lambda: x @ ops.ones(4),
        lambda: whole << 1.5,
        lambda: x + nn.tensor.array([1.0], dtype="float16"),
        lambda: round(x, 2),
        lambda: x.missing,
        lambda: x + {"a": 1},
        lambda: ops.tanh("a"),
        lambda: whole // 0,
    ]
    return {
        "subclass": [mine + 1, (1 + mine).tolist(), mine.double().tolist(), type(mine).__name__],
        "freed": [is_freed(lambda: [x * 1]), is_freed(lambda: cycle(x)), is_freed(lambda: [x[1:]])],
        "trees": trees(),
        # Without their frames: comprehensions have some of their own where they are not compiled.
        "wrong calls": [error_of(call) | {"frames": None} for call in wrong_calls(x)],
        "gradients": [type(leaf).__name__, type(leaf * 2).__name__, leaf.grad.tolist()],
        "no gradients": type(leaf.requires_grad_(False)).__name__,
        "pickle": [back.tolist(), back.backend, str(back.dtype), type(back).__name__],
        "copies": [copy.copy(x).tolist(), twin.tolist(), isinstance(twin, nn.Parameter)],
        "views": [base.tolist(), type(x.slice((0, 2))).__name__, x.slice((0, 2)).tolist()],
        "operators": [str(operator()) for operator in operators],
        "hash": [hash(x) == id(x), len({x, x})],
        "slots": [hasattr(ops.ones(1), name) for name in SLOTS],
        "errors": [error_of(mistake) for mistake in mistakes],
    }


told: dict[str, Any] = {"compiled": compiled.is_compiled(), "stale": compiled.stale(), **looks()}
for name in em.available_backends():
    with em.use_backend(name):
        told[name] = behaviour()
json.dump(told, sys.stdout)
