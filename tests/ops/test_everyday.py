"""Laws of everyday ops that single cases cannot show: gradients, tracing, random shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import ember_ml as em
from ember_ml import ops
from ember_ml.errors import BackendMismatchError, UnsupportedOpError
from ember_ml.nn import tensor

INDICES = [4, 0, 2, 4, 5, 4, 0]
LETTERS = "abcd"


# --- The programs of the plans ----------------------------------------------------------------


def test_scatter_as_the_plans_write_it(backend: str) -> None:
    values, indices = tensor.array([1.0, 2.0, 3.0]), tensor.array([0, 2, 0])
    total = ops.scatter(values, indices, 4, "add")
    count = ops.scatter(ops.ones_like(values), indices, 4, "add")
    count = ops.where(count == 0, ops.ones_like(count), count)
    assert ops.divide(total, count).tolist() == [2.0, 0.0, 2.0, 0.0]
    assert ops.scatter(tensor.ones((10,)), tensor.array([0, 1, 0])).tolist() == [2.0, 1.0]
    empty = ops.scatter(tensor.array([]), tensor.array([], dtype=tensor.int32))
    assert empty.shape == (0,)
    wide = ops.scatter(tensor.ones((10000,)), tensor.array([0, 9999]))
    assert wide.shape == (10000,)
    assert wide.numpy().sum() == 2


def test_split_for_devices(backend: str) -> None:
    parts = ops.split(tensor.ones((8, 3)), 4)
    assert [part.shape for part in parts] == [(2, 3)] * 4


@pytest.mark.parametrize("options", [{"prepend": 0}, {"append": 7}, {"prepend": 0, "append": 7}])
def test_diff_takes_numbers_at_the_ends(backend: str, options: dict[str, Any]) -> None:
    x = np.asarray([[1.0, 4.0, 9.0], [2.0, 3.0, 5.0]], np.float32)
    for axis in (0, 1):
        got = ops.diff(ops.asarray(x), axis=axis, **options)
        assert got.dtype == "float32"
        np.testing.assert_array_equal(got.numpy(), np.diff(x, axis=axis, **options))
    ends = {name: ops.asarray(end, dtype="float32") for name, end in options.items()}
    np.testing.assert_array_equal(ops.diff(ops.asarray(x), **ends).numpy(), got.numpy())
    # A Python number is weak: it widens no dtype of its kind.
    assert ops.diff(ops.ones(2, dtype="float16"), prepend=0.5).dtype == "float16"
    assert ops.diff(ops.ones(2, dtype="int32"), prepend=0).dtype == "int32"


def test_gradient_of_diff_with_numbers_at_the_ends(backend: str) -> None:
    weights = ops.asarray([1.0, 10.0, 100.0])
    gradient = em.grad(lambda x: ops.sum(ops.diff(x, prepend=0.0, append=5.0) * weights))
    assert gradient(ops.asarray([1.0, 2.0])).tolist() == [-9.0, -90.0]


# --- Properties -------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_scatter_is_add_at(data: st.DataObject) -> None:
    places = data.draw(st.integers(1, 6))
    count = data.draw(st.integers(0, 12))
    indices = data.draw(arrays.arrays(np.int64, count, elements=st.integers(-places, places - 1)))
    values = data.draw(arrays.arrays(np.int32, (count, 2)))
    wanted = np.zeros((places, 2), np.int32)
    np.add.at(wanted, indices, values)
    for name in ("numpy", "torch", "mlx"):
        with em.use_backend(name):
            got = ops.scatter(values, indices, places)
        np.testing.assert_array_equal(got.numpy(), wanted)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_pad_is_numpys(data: st.DataObject) -> None:
    shape = data.draw(arrays.array_shapes(min_dims=1, max_dims=3, max_side=4))
    widths = data.draw(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=len(shape),
                 max_size=len(shape))
    )  # fmt: skip
    mode = data.draw(
        st.sampled_from(["constant", "edge", "maximum", "minimum", "reflect", "symmetric", "wrap"])
    )
    options = {}
    if mode in ("reflect", "symmetric"):
        options["reflect_type"] = data.draw(st.sampled_from(["even", "odd"]))
    x = data.draw(arrays.arrays(np.int64, shape, elements=st.integers(-9, 9)))
    for name in ("numpy", "torch"):
        with em.use_backend(name):
            got = ops.pad(x, widths, mode, **options)
        np.testing.assert_array_equal(got.numpy(), np.pad(x, widths, mode, **options))


@pytest.mark.parametrize("text", ["ij->ij", "ij->ji", "ii->i"])
def test_einsum_of_one_operand_has_memory_of_its_own(backend: str, text: str) -> None:
    x = ops.zeros((2, 2))
    ops.einsum(text, x)[...] = 1.0
    assert x.tolist() == [[0.0, 0.0], [0.0, 0.0]]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_einsum_is_numpys(data: st.DataObject) -> None:
    terms = data.draw(st.lists(st.text(LETTERS, min_size=0, max_size=3), min_size=1, max_size=3))
    used = sorted(set("".join(terms)))
    output = data.draw(st.permutations(used).map("".join))[: data.draw(st.integers(0, len(used)))]
    sides = {letter: data.draw(st.integers(0, 3)) for letter in used}
    generator = np.random.default_rng(0)
    operands = [generator.integers(-3, 4, [sides[c] for c in term]) for term in terms]
    text = ",".join(terms) + "->" + output
    wanted = np.einsum(text, *operands)
    for name in ("numpy", "torch", "mlx"):
        with em.use_backend(name):
            got = ops.einsum(text, *operands)
            floating = ops.einsum(text, *(o.astype(np.float32) for o in operands))
        np.testing.assert_array_equal(got.numpy(), wanted)
        np.testing.assert_allclose(floating.numpy(), wanted, rtol=1e-5, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    x=arrays.arrays(np.uint16, 4),
    by=st.integers(-40, 40),
)
def test_rotations_undo_each_other(x: Any, by: int) -> None:
    for name in ("numpy", "torch", "mlx"):
        with em.use_backend(name):
            turned = ops.rotate_left(x, by)
            np.testing.assert_array_equal(ops.popcount(turned).numpy(), ops.popcount(x).numpy())
            np.testing.assert_array_equal(ops.rotate_right(turned, by).numpy(), x)


@settings(max_examples=25, deadline=None)
@given(side=st.integers(0, 9), parts=st.integers(1, 5))
def test_parts_join_to_the_whole(side: int, parts: int) -> None:
    x = np.arange(side * 2).reshape(side, 2)
    for split in (ops.array_split, ops.chunk):
        got = split(ops.asarray(x), parts)
        np.testing.assert_array_equal(ops.concat(got, axis=0).numpy(), x)
    assert [p.shape[0] for p in ops.array_split(x, parts)] == [
        len(p) for p in np.array_split(x, parts)
    ]


# --- Scatter ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint32", "int64", "uint64"])
def test_integer_powers_wrap(backend: str, dtype: str) -> None:
    base, exponent = np.array([2, 3, 5, 7], dtype), np.array([64, 100, 65, 127], dtype)
    with np.errstate(all="ignore"):
        got = ops.power(ops.asarray(base), ops.asarray(exponent)).numpy()
        np.testing.assert_array_equal(got, np.power(base, exponent), strict=True)


def test_scatter_softmax_of_masked_groups(backend: str) -> None:
    """A group of nothing but -inf has no shares, and that is no reason for a warning."""
    got = ops.scatter_softmax([-math.inf, 0.0, -math.inf], [0, 1, 1]).tolist()
    assert math.isnan(got[0])
    assert got[1:] == [1.0, 0.0]


def test_scatter_is_deterministic(backend: str) -> None:
    generator = np.random.default_rng(0)
    values = ops.asarray(generator.standard_normal(100_000).astype("float32"))
    indices = ops.asarray(generator.integers(0, 100, 100_000))
    for how in ("add", "mean", "max", "mul"):
        first, second = (ops.scatter(values, indices, 100, how).numpy() for _ in range(2))
        np.testing.assert_array_equal(first, second)


def test_halves_are_added_in_single_precision(backend: str) -> None:
    # In float16 itself, 2048 + 1 is 2048.
    for dtype in ("float16", "bfloat16"):
        ones = ops.ones(2060, dtype=dtype)
        total = ops.scatter(ones, np.zeros(2060, int), 1)
        assert total.item() == ops.asarray(2060.0, dtype=dtype).item()
        assert ops.scatter(1000 * ones, np.zeros(2060, int), 1, "mean").item() == 1000


def test_integers_stay_exact(backend: str) -> None:
    large = 2**62 + 1
    assert ops.scatter(ops.asarray([large, 5]), [0, 0]).item() == large + 5


def test_backends_do_not_mix() -> None:
    with em.use_backend("torch"):
        values = ops.ones(3)
    with em.use_backend("jax"), pytest.raises(BackendMismatchError):
        ops.scatter(values, ops.asarray([0, 1, 2]))


# --- Gradients ----------------------------------------------------------------------------------

X = np.array([1.5, -2.0, 0.5, 3.0, -1.0, 0.25, 2.0])
WEIGHTS = np.array([1.0, -2.0, 3.0, 0.5, 4.0, -1.5])

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    **{
        f"scatter_{how}": lambda x, how=how: ops.scatter(x, INDICES, 6, how)
        for how in ("add", "mean", "max", "min", "mul")
    },
    "scatter_softmax": lambda x: ops.scatter(x, INDICES, 6, "softmax")[:6],
    "scatter_zeros": lambda x: ops.scatter_mul(x * np.array([1, 1, 1, 0, 1, 1, 0.0]), INDICES, 6),
    "index_update": lambda x: ops.index_update(x[:6], [0, 2], x[5:]),
    "index_add": lambda x: ops.index_add(x[:6], [1, 1], x[5:]),
    "slice_update": lambda x: ops.slice_update(x[:6], (2,), x[4:7]),
    "gather": lambda x: ops.gather(x, [0, 0, 3, 6, 1, 2]),
    "gather_nd": lambda x: ops.gather_nd(x, [[0], [0], [3], [6], [1], [2]]),
    "tensor_scatter_nd_max": lambda x: ops.tensor_scatter_nd_max(x[:6], [[0], [1]], x[2:4]),
    "masked_fill": lambda x: ops.masked_fill(x[:6], [True, False] * 3, 0.0),
    "pad_reflect": lambda x: ops.pad(x[:3], (2, 1), "reflect"),
    "pad_constant": lambda x: ops.pad(x[:3], (2, 1)),
    "pad_odd": lambda x: ops.pad(x[:3], (2, 1), "symmetric", reflect_type="odd"),
    "pad_ramp": lambda x: ops.pad(x[:3], (2, 1), "linear_ramp"),
    "split": lambda x: ops.hstack(ops.split(x, [2, 4, 6])[:3]),
    "insert": lambda x: ops.insert(x[:4], [1, 3], x[4:6]),
    "delete": lambda x: ops.delete(x, 3),
    "einsum": lambda x: ops.einsum("i,ij,k->j", x, ops.asarray(np.outer(X, WEIGHTS)), x),
    "einsum_diagonal": lambda x: ops.einsum("ii->i", ops.einsum("i,j", x[:6], x[1:])),
    "outer": lambda x: ops.outer(x[:2], x[2:5]),
    "fill_diagonal": lambda x: ops.ravel(ops.fill_diagonal(ops.reshape(x[:6], (2, 3)), x[5:])),
}  # fmt: skip


def _loss(program: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: ops.sum(ops.ravel(program(x)) * WEIGHTS)


def _numerical(program: Callable[[Any], Any]) -> np.ndarray[Any, Any]:
    loss = _loss(program)
    step = 1e-6
    return np.array([
        (float(loss(ops.asarray(X + d))) - float(loss(ops.asarray(X - d)))) / (2 * step)
        for d in step * np.eye(len(X))
    ])  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_flow(name: str) -> None:
    import jax
    import torch

    program = PROGRAMS[name]
    with em.use_backend("numpy"):
        wanted = _numerical(program)
    with em.use_backend("torch"):
        leaf = em.Tensor(X, requires_grad=True)
        loss = _loss(program)(leaf)
        assert loss.requires_grad
        (gradient,) = torch.autograd.grad(loss.native, leaf.native)
        np.testing.assert_allclose(gradient.numpy(), wanted, rtol=1e-5, atol=1e-6)
    with em.use_backend("jax"):
        got = jax.jit(jax.grad(lambda x: _loss(program)(x).native))(ops.asarray(X).native)
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", ["add", "mean", "max", "min", "mul", "softmax"])
def test_scatter_differentiates_on_mlx(how: str) -> None:
    import mlx.core as mx

    name = f"scatter_{how}"
    with em.use_backend("numpy"):
        wanted = _numerical(PROGRAMS[name])
    with em.use_backend("mlx"):
        loss = mx.grad(lambda x: ops.sum(PROGRAMS[name](x) * WEIGHTS.astype("float32")).native)
        np.testing.assert_allclose(np.asarray(loss(mx.array(X.astype("float32")))), wanted,
                                   rtol=1e-3, atol=1e-3)  # fmt: skip


def test_embedding_padding_has_no_gradient() -> None:
    import jax
    import torch

    table = np.arange(6.0).reshape(3, 2)
    wanted = [[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]]
    with em.use_backend("torch"):
        leaf = em.Tensor(table, requires_grad=True)
        out = ops.sum(ops.embedding([0, 1, 2, 2, -2], leaf, padding_idx=1))
        (gradient,) = torch.autograd.grad(out.native, leaf.native)
        assert gradient.tolist() == wanted
    with em.use_backend("jax"):
        program = jax.grad(lambda w: ops.sum(ops.embedding([0, 1, 2, 2, -2], w, 1)).native)
        assert program(ops.asarray(table).native).tolist() == wanted


# --- Tracing --------------------------------------------------------------------------------------


def test_programs_compile_under_jax() -> None:
    import jax

    with em.use_backend("jax"):
        x, where = ops.asarray(X), ops.asarray([-1, 2])
        compiled = jax.jit(lambda x, i: ops.scatter_max(x[:2], i, 3).native)
        assert compiled(x.native, where.native).tolist() == [0.0, 0.0, 1.5]
        compiled = jax.jit(lambda x, i: ops.index_add(x, i, 1.0).native)
        np.testing.assert_allclose(compiled(x.native, where.native)[2], 1.5)
        compiled = jax.jit(lambda x, i: ops.one_hot(i % 3, 3).native)
        assert compiled(x.native, where.native).tolist() == [[0, 0, 1], [0, 0, 1]]
        start = ops.asarray([2])
        compiled = jax.jit(lambda x, i: ops.dynamic_slice(x, em.Tensor(i), (2,)).native)
        assert compiled(x.native, start.native).tolist() == [0.5, 3.0]
        compiled = jax.jit(lambda x, i: ops.slice_update(x, em.Tensor(i), [9.0, 9.0]).native)
        assert compiled(x.native, start.native).tolist()[2:5] == [9.0, 9.0, -1.0]


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (lambda x: ops.scatter(x, x.astype("int64")), "dim_size"),
        (lambda x: ops.one_hot(x.astype("int64")), "num_classes"),
        (lambda x: ops.masked_select(x, x > 0), "mask"),
    ],
    ids=["scatter", "one_hot", "masked_select"],
)
def test_what_depends_on_values_is_refused(run: Callable[[Any], Any], word: str) -> None:
    import jax

    with em.use_backend("jax"), pytest.raises(UnsupportedOpError, match=word):
        jax.jit(lambda x: run(em.Tensor(x)).native)(np.ones(3))


def test_programs_compile_under_mlx() -> None:
    import mlx.core as mx

    with em.use_backend("mlx"):
        compiled = mx.compile(lambda x, i: ops.scatter(x, i, 6, "mean").native)
        got = compiled(mx.array(X.astype("float32")), mx.array(INDICES))
        wanted = ops.scatter(X.astype("float32"), INDICES, 6, "mean")
        np.testing.assert_allclose(np.asarray(got), wanted.numpy())


TRACED: dict[str, Callable[[Any, Any], Any]] = {
    "scatter_mean": lambda x, i: ops.scatter(x, i, 7, "mean"),
    "scatter_max": lambda x, i: ops.scatter(x, i, 7, "max"),
    "scatter_softmax": lambda x, i: ops.scatter(x, i, 7, "softmax"),
    "index_update": lambda x, i: ops.index_update(x, i, 1.0),
    "index_add": lambda x, i: ops.index_add(x, i, x),
    "one_hot": lambda x, i: ops.one_hot(i, 7),
    "gather": lambda x, i: ops.gather(x, i),
    "scatter_nd": lambda x, i: ops.scatter_nd(ops.expand_dims(i, 1), x, (7,)),
    "embedding": lambda x, i: ops.embedding(i, ops.expand_dims(x, 1), padding_idx=0),
    "pad": lambda x, i: ops.pad(x, 2, "reflect", reflect_type="odd"),
    "pad_constant": lambda x, i: ops.pad(x, 2),
    "einsum": lambda x, i: ops.einsum("i,j->ij", x, x),
    "rotate_left": lambda x, i: ops.rotate_left(i, 3),
    "popcount": lambda x, i: ops.popcount(i),
}


@pytest.mark.parametrize("name", TRACED)
def test_traces_keep_nothing_of_their_values(name: str) -> None:
    """A program that torch has recorded gives for other values what the op itself gives."""
    from torch.fx.experimental.proxy_tensor import make_fx

    program = TRACED[name]
    with em.use_backend("torch"):
        x, i = ops.asarray(X.astype("float32")), ops.asarray(INDICES)
        other, j = ops.flip(x) * 2, ops.asarray([1, 2, 3, 3, 3, 6, 0])
        recorded = make_fx(lambda x, i: program(em.Tensor(x), em.Tensor(i)).native)(
            x.native, i.native
        )
        got = recorded(other.native, j.native)
        np.testing.assert_allclose(got.numpy(), program(other, j).numpy())


def test_nothing_changes_its_input(backend: str) -> None:
    x = ops.asarray(np.arange(6.0).reshape(2, 3))
    before = x.numpy().copy()
    ops.index_update(x, (0, slice(None)), 9.0)
    ops.slice_update(x, (0, 0), [[9.0]])
    ops.put_along_axis(x, [[0], [1]], 9.0)
    ops.fill_diagonal(x, 9.0)
    ops.tensor_scatter_nd_update(x, [[0, 0]], [9.0])
    padded = ops.pad(x, 0)
    padded[0, 0] = 9.0
    np.testing.assert_array_equal(x.numpy(), before)
