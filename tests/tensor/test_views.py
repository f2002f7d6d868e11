"""Views mean the same on every backend: random programs are played beside NumPy."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ember_ml as em
from ember_ml import ops
from ember_ml.errors import OutOfBoundsError, ReadOnlyError, ShapeError, UnsupportedOpError
from ember_ml.nn import tensor
from ember_ml.tensor import TensorView, TensorViewMut, writing

# Few shapes: JAX compiles a program for each part of each.
SHAPES = ((4,), (2, 3), (2, 1, 4))
BOUNDS = st.sampled_from([None, 0, 1, 2, -1, -2])
STEPS = st.sampled_from([None, 1, 2, -1, -2])


# --- Random programs ------------------------------------------------------------------------------


def draw_key(data: st.DataObject, shape: tuple[int, ...]) -> tuple[Any, ...]:
    key: list[Any] = []
    for side in shape:
        kind = data.draw(st.sampled_from(["slice", "slice", "all", "int", "new", "rest"]))
        if kind == "int" and side:
            key.append(data.draw(st.integers(-side, side - 1)))
        elif kind == "slice":
            key.append(slice(data.draw(BOUNDS), data.draw(BOUNDS), data.draw(STEPS)))
        elif kind == "new":
            key += [None, slice(None)]
        elif kind == "rest":
            key.append(...)
            break
        else:
            key.append(slice(None))
    return tuple(key)


def with_ellipsis(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key under which NumPy gives a view also of one element."""
    return key if ... in key else (*key, ...)


def draw_view(data: st.DataObject, x: em.Tensor, a: np.ndarray) -> tuple[em.Tensor, np.ndarray]:
    """One of the ways to make a view, for us and for NumPy."""
    kind = data.draw(
        st.sampled_from(["key", "key", "permute", "flip", "reshape", "broadcast", "narrow", "T"])
    )
    if kind == "permute":
        axes = data.draw(st.permutations(range(a.ndim)))
        return x.permute(axes), a.transpose(axes)
    if kind == "flip":
        axis = data.draw(st.sampled_from([None, *range(a.ndim)]))
        return x.flip(axis), np.flip(a, axis) if a.ndim else a
    if kind == "reshape":
        shape = data.draw(st.sampled_from([(-1,), (1, -1), (-1, 2)]))
        if a.size and (shape != (-1, 2) or a.size % 2 == 0):
            return x.reshape(shape), a.reshape(shape)
    if kind == "broadcast":
        shape = (2, *a.shape)
        return x.broadcast_to(shape), np.broadcast_to(a, shape)
    if kind == "narrow" and a.ndim and a.shape[0] > 1:
        return x.narrow(0, 1, a.shape[0] - 1), a[1:]
    if kind == "T" and a.ndim == 2:
        return x.T, a.T
    key = draw_key(data, a.shape)
    return x[key], a[with_ellipsis(key)]


def write(data: st.DataObject, x: em.Tensor, a: np.ndarray, value: int) -> None:
    """One of the ways to write, for us and for NumPy; both refuse or neither."""
    kind = data.draw(st.sampled_from(["scalar", "array", "add", "mask", "own"]))
    if not a.flags.writeable:
        with pytest.raises(ReadOnlyError):
            x[...] = value
        with pytest.raises(ReadOnlyError):
            x += 1
        return
    if kind == "add":
        x *= 2
        a *= 2
        return
    if kind == "mask":
        x[x > 5] = value
        a[a > 5] = value
        return
    key = draw_key(data, a.shape)
    target = a[with_ellipsis(key)]
    if kind == "own" and a.ndim and a.shape[0] > 1:  # memory that overlaps what is written
        x[1:] = x[:-1]
        a[1:] = a[:-1].copy()
    elif kind == "array":
        values = np.arange(target.size, dtype=np.int64).reshape(target.shape) + value
        x[key] = values
        target[...] = values
    else:
        x[key] = value
        target[...] = value


def play(backend: str, data: st.DataObject) -> None:
    with em.use_backend(backend):
        shape = data.draw(st.sampled_from(SHAPES))
        start = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
        x, a = ops.asarray(start, copy=True), start.copy()
        family: list[tuple[em.Tensor, np.ndarray]] = [(x, a)]
        for step in range(data.draw(st.integers(2, 7))):
            one, two = family[data.draw(st.integers(0, len(family) - 1))]
            kind = data.draw(st.sampled_from(["view", "view", "write", "write", "clone", "alias"]))
            if kind == "view":
                family.append(draw_view(data, one, two))
            elif kind == "write":
                write(data, one, two, 100 + step)
            elif kind == "clone":
                family.append((one.clone(), two.copy()))
            else:
                family.append((one.alias(), two))
            for mine, theirs in family:
                assert mine.shape == theirs.shape
                np.testing.assert_array_equal(mine.numpy(), theirs)
                assert mine.dtype == "int64"


@settings(max_examples=150, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("backend", ["numpy", "torch", "mlx"])
def test_random_programs_of_views_and_writes(backend: str, data: st.DataObject) -> None:
    play(backend, data)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_programs_of_views_and_writes_on_jax(data: st.DataObject) -> None:
    play("jax", data)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("backend", ["jax", "mlx"])
def test_random_programs_where_old_arrays_are_given_up(backend: str, data: st.DataObject) -> None:
    """As with large tensors, whose storage owns its array and writes in place."""
    with mock.patch.object(writing, "_SMALL", 0):
        play(backend, data)


# --- One by one -----------------------------------------------------------------------------------


def values(x: em.Tensor) -> Any:
    return x.tolist()


def test_a_write_through_a_view_is_seen_by_all(backend: str) -> None:
    x = tensor.arange(12).reshape(3, 4)
    inner = x[1:, ::2]
    turned = inner.flip(1)
    inner[0, 0] = 40
    assert values(turned) == [[6, 40], [10, 8]]
    turned += 1
    assert values(x) == [[0, 1, 2, 3], [41, 5, 7, 7], [9, 9, 11, 11]]
    x[1] = 0
    assert values(inner) == [[0, 0], [9, 11]]


def test_strides_offset_and_contiguity_are_the_same_everywhere(backend: str) -> None:
    x = tensor.zeros((3, 4))
    facts = {
        "whole": x,
        "rows": x[1:],
        "columns": x[:, 1:3],
        "turned": x.T,
        "steps": x[::2, ::-1],
        "one": x[1, 2],
        "flat": x.reshape(-1)[5:7],
        "broadcast": x[0].broadcast_to((2, 4)),
    }
    assert {k: (v.strides, v.offset, v.is_contiguous) for k, v in facts.items()} == {
        "whole": ((4, 1), 0, True),
        "rows": ((4, 1), 4, True),
        "columns": ((4, 1), 1, False),
        "turned": ((1, 4), 0, False),
        "steps": ((8, -1), 3, False),
        "one": ((), 6, True),
        "flat": ((1,), 5, True),
        "broadcast": ((0, 1), 0, False),
    }


def test_shares_memory_is_exact(backend: str) -> None:
    x = tensor.zeros((4, 4))
    assert x.shares_memory(x.T)
    assert x[::2].shares_memory(x[2])
    assert not x[::2].shares_memory(x[1::2])
    assert not x[:, 0].shares_memory(x[:, 1])
    assert x.flip().shares_memory(x[3, 3])
    assert x.alias().shares_memory(x)
    assert not x.clone().shares_memory(x)
    assert not x.copy().shares_memory(x)
    assert not (x + 0).shares_memory(x)
    assert not x[:0].shares_memory(x)


def test_slice_gives_a_view_for_reading_and_slice_mut_one_for_writing(backend: str) -> None:
    x = tensor.arange(12).reshape(3, 4)
    seen = x.slice((1, 3), slice(None, None, -1))
    part = x.slice_mut(range(0, 3, 2), 1)
    assert type(seen) is TensorView
    assert type(part) is TensorViewMut
    assert isinstance(part, em.Tensor)
    part[:] = -1
    assert values(x[:, 1]) == [-1, 5, -1]
    assert values(seen) == [[7, 6, 5, 4], [11, 10, -1, 8]]
    for refused in (seen, seen[0], seen.T, seen.reshape(8), seen.slice(0)):
        if not refused.shares_memory(seen):
            continue  # reshaped by a copy
        with pytest.raises(ReadOnlyError, match="slice_mut"):
            refused[0] = 1
        with pytest.raises(ReadOnlyError, match="slice_mut"):
            refused *= 2
    with pytest.raises(ReadOnlyError):
        seen.slice_mut(0)
    assert not seen.numpy().flags.writeable
    seen.clone()[0] = 7
    assert values(x[1]) == [4, 5, 6, 7]
    assert values(seen + 1)[0] == [8, 7, 6, 5]


def test_narrow_and_select(backend: str) -> None:
    x = tensor.arange(12).reshape(3, 4)
    assert values(x.narrow(1, 1, 2)) == [[1, 2], [5, 6], [9, 10]]
    assert values(x.narrow(-2, -1, 1)) == [[8, 9, 10, 11]]
    assert x.narrow(0, 3, 0).shape == (0, 4)
    assert values(x.select(-1, -1)) == [3, 7, 11]
    x.select(0, 1)[:] = 0
    assert values(x[1]) == [0, 0, 0, 0]
    for start, length in ((2, 2), (0, -1), (-4, 1), (4, 0)):
        with pytest.raises(OutOfBoundsError, match="narrow"):
            x.narrow(0, start, length)
    with pytest.raises(OutOfBoundsError, match="select"):
        x.select(1, 4)
    with pytest.raises(em.AxisError):
        x.select(2, 0)


def test_view_takes_only_what_strides_describe(backend: str) -> None:
    x = tensor.arange(12)
    grid = x.view(3, -1)
    grid[1, 1] = 50
    assert values(x[5]) == 50
    assert values(grid.view((12,))) == values(x)
    with pytest.raises(ShapeError, match="reshape"):
        grid.T.view(12)
    copied = grid.T.reshape(12)
    copied[0] = 99
    assert values(x[0]) == 0
    assert values(tensor.zeros((0, 3)).view(3, 0)) == [[], [], []]


def test_views_of_nothing_and_of_one(backend: str) -> None:
    x = tensor.zeros((0, 3))
    x[...] = 5.0
    x.T[:, :] = 5.0
    assert x[:, 1:].shape == (0, 2)
    one = tensor.array(3.0)
    one.view(1)[0] = 4.0
    one[()] += 1.0
    assert values(one) == 5.0
    assert values(one[...]) == 5.0


def test_a_broadcast_view_is_not_written(backend: str) -> None:
    x = tensor.arange(3)
    wide = x.broadcast_to((2, 3))
    for refused in (wide, wide[0], wide[:, 1:].T):
        with pytest.raises(ReadOnlyError, match="copy"):
            refused[...] = 1
        with pytest.raises(ReadOnlyError, match="copy"):
            refused += 1
    x[0] = 7
    assert values(wide) == [[7, 1, 2], [7, 1, 2]]
    mine = wide.clone()
    mine[0, 0] = 0
    assert values(mine) == [[0, 1, 2], [7, 1, 2]]
    assert values(x) == [7, 1, 2]


def test_a_value_that_does_not_fit_changes_nothing(backend: str) -> None:
    x = tensor.arange(6).reshape(2, 3)
    part = x[:, 1:]
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        part[...] = tensor.zeros(3, dtype="int64")
    with pytest.raises(em.DTypeError):
        part[...] = 0.5
    with pytest.raises(em.DTypeError):
        part /= 2
    assert values(x) == [[0, 1, 2], [3, 4, 5]]
    assert x.storage.version == 0
    part[:] = [[[7, 8]]]  # leading axes of length one fall away
    assert values(x) == [[0, 7, 8], [3, 7, 8]]
    assert part.storage is x.storage
    assert x.storage.version == 1


def test_clone_is_a_copy_to_all_who_write(backend: str) -> None:
    x = tensor.arange(4)
    view = x[1:3]
    first, second = x.clone(), x.clone()
    third = view.clone()
    view[0] = 10
    assert [values(t) for t in (x, first, second, third)] == [
        [0, 10, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3], [1, 2],
    ]  # fmt: skip
    inner = first[2:]
    first[0] = 5
    inner += 1
    third *= 3
    assert [values(t) for t in (x, first, second, third, inner)] == [
        [0, 10, 2, 3], [5, 1, 3, 4], [0, 1, 2, 3], [3, 6], [3, 4],
    ]  # fmt: skip
    again = first.clone().clone()
    del first
    again[:] = 0
    second += second
    assert [values(t) for t in (x, second, again, inner)] == [
        [0, 10, 2, 3], [0, 2, 4, 6], [0, 0, 0, 0], [3, 4],
    ]  # fmt: skip


def test_a_clone_copies_nothing_until_somebody_writes(backend: str) -> None:
    x = tensor.zeros(1 << 16)
    y = x.clone()
    assert y.native is x.native
    y[0] = 1.0
    assert y.native is not x.native
    assert values(x[0]) == 0.0


def test_alias_and_detach_share_memory(backend: str) -> None:
    x = tensor.zeros(3)
    for other in (x.alias(), x.detach(), em.Tensor(x), x[1:].alias()):
        x[2] = 5.0
        assert values(other)[-1] == 5.0
        other += 1.0
        assert values(x[2]) == 6.0
        assert other.storage is x.storage


def test_read_only_memory_is_copied_before_a_write(backend: str) -> None:
    host = np.arange(4.0)
    host.flags.writeable = False
    x = ops.asarray(host)
    part = x[1:]
    part[0] = 9.0
    assert values(x) == [0.0, 9.0, 2.0, 3.0]
    assert host.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_ops_give_plain_tensors_of_views(backend: str) -> None:
    x = tensor.arange(6).reshape(2, 3)
    part = x[:, ::-1]
    assert type(part + 1) is em.Tensor
    assert type(part.sum()) is em.Tensor
    assert values(part @ x.T) == [[1, 10], [10, 46]]
    assert values(ops.where(part > 2, part, 0)) == [[0, 0, 0], [5, 4, 3]]
    assert values(ops.stack([part, part])[1]) == [[2, 1, 0], [5, 4, 3]]
    assert part.numpy().tolist() == [[2, 1, 0], [5, 4, 3]]
    assert len(part) == 2
    assert [values(row) for row in part] == [[2, 1, 0], [5, 4, 3]]


def test_only_arrangement_gives_views(backend: str) -> None:
    """The result of any other op has memory of its own, whatever the engine does."""
    x = tensor.array([[1.0, 2.0], [3.0, 4.0]])
    z = x.astype("complex64")
    for made in (
        +x, ops.abs(x), ops.round(x), ops.real(z), ops.imag(z), ops.conj(z), ops.conj(x),
        ops.tril(x), ops.triu(x), ops.roll(x, 0), ops.tile(x, (1, 1)), ops.repeat(x, 1),
        ops.take(x, ops.asarray([0, 1]), axis=0), ops.concat([x]), ops.stack([x]),
        ops.clip(x), ops.where(ops.asarray([[True]]), x, x), ops.linalg.diagonal(x),
        ops.sort(x), ops.cumulative_sum(x, axis=0), x.sum(axis=()), x.max(axis=()),
        ops.astype(x, "float32"), x[x > 0], x[[0, 1]], ops.real(x),
    ):  # fmt: skip
        assert not made.shares_memory(x)
        assert not made.shares_memory(z)
        made[...] = 0.0
    assert values(x) == [[1.0, 2.0], [3.0, 4.0]]
    assert values(z) == [[1, 2], [3, 4]]


def test_a_grid_can_be_written_and_leaves_its_axes_alone(backend: str) -> None:
    x = tensor.arange(2)
    grid, _ = ops.meshgrid(x, x)
    grid[0, 0] = 9
    assert values(grid) == [[9, 1], [0, 1]]
    assert values(x) == [0, 1]


def test_gradients_and_views(backend: str) -> None:
    x = tensor.array([1.0, 2.0, 3.0], requires_grad=True)
    part = x[1:]
    assert part.requires_grad
    assert values(part) == [2.0, 3.0]
    assert x.clone().requires_grad
    with pytest.raises(em.DomainError, match="gradients"):
        x.slice(0)
    if backend in ("jax", "mlx"):
        with pytest.raises(UnsupportedOpError, match="gradients"):
            part += 1.0


def test_a_tensor_from_outside_is_not_written_while_jax_traces() -> None:
    import jax

    with em.use_backend("jax"):
        x = tensor.zeros(4)
        part = x[1:]

        def leak(value: Any) -> Any:
            part[0] = ops.asarray(value)
            return value

        def replace(value: Any) -> Any:
            nonlocal x
            x += ops.asarray(value)
            return value

        for function in (leak, replace):
            with pytest.raises(UnsupportedOpError, match="traced"):
                jax.jit(function)(np.float32(1))
        assert values(x) == [0.0, 0.0, 0.0, 0.0]
        inside = jax.jit(lambda native: em.Tensor(native)[1:].sum().native)
        assert float(inside(x.native + 1)) == 3.0

        def local(native: Any) -> Any:
            mine = ops.asarray(native)
            part = mine[1:]
            part[0] = 1.0
            return mine.native

        assert jax.jit(local)(x.native).tolist() == [0.0, 1.0, 0.0, 0.0]
        assert values(x) == [0.0, 0.0, 0.0, 0.0]
