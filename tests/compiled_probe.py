"""What a program sees of the core, as JSON: run on both forms by test_compiled.py."""

import copy
import gc
import inspect
import json
import pickle
import sys
import traceback
import weakref
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
        "mro": [c.__name__ for c in Tensor.__mro__],
        "repr": [repr(Tensor), Tensor.__module__, Tensor.__qualname__],
        "dict": hasattr(ops.ones(1), "__dict__"),
    }


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
