"""Trees: apart and together, registered classes, structures that compare, readable differences."""

from __future__ import annotations

import pickle
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ember_ml import Tensor, tree
from ember_ml.errors import DomainError, ShapeError


class State(NamedTuple):
    mean: Any
    var: Any


Plain = namedtuple("Plain", "x y")  # the older way makes named tuples as well

LEAVES = st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
TREES = st.recursive(
    LEAVES | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.builds(State, inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2).map(OrderedDict)
    ),
    max_leaves=12,
)


@given(TREES)
def test_what_comes_apart_comes_together(value: Any) -> None:
    leaves, structure = tree.flatten(value)
    again = tree.unflatten(structure, leaves)
    assert again == value
    assert type(again) is type(value)
    assert repr(again) == repr(value)  # the order of dict keys as well
    assert len(leaves) == structure.leaf_count == len(tree.paths(structure))


@given(TREES)
def test_structures_compare_and_hash_without_their_leaves(value: Any) -> None:
    structure = tree.structure(value)
    other = tree.structure(tree.map(lambda leaf: object(), value))
    assert structure == other
    assert hash(structure) == hash(other)
    assert tree.difference(structure, other) is None
    revived = pickle.loads(pickle.dumps(structure))
    assert revived == structure
    assert revived.leaf_count == structure.leaf_count


@given(TREES, TREES)
def test_a_difference_is_found_where_there_is_one(first: Any, second: Any) -> None:
    one, other = tree.structure(first), tree.structure(second)
    assert (tree.difference(one, other, "x") is None) == (one == other)


@given(TREES)
def test_paths_are_expressions(value: Any) -> None:
    leaves, structure = tree.flatten(value)
    found = [eval(path, {"x": value}) for path in tree.paths(structure, "x")]
    assert found == leaves


@given(TREES)
def test_one_value_stands_for_a_whole_subtree(value: Any) -> None:
    structure = tree.structure(value)
    assert tree.spread(7, structure, "axes") == [7] * structure.leaf_count
    assert tree.spread((1, None), tree.structure((value, value)), "axes") == (
        [1] * structure.leaf_count + [None] * structure.leaf_count
    )


def test_dicts_agree_however_they_were_filled() -> None:
    first, second = {"b": 1, "a": 2}, {"a": 20, "b": 10}
    assert tree.structure(first) == tree.structure(second)
    assert tree.map(lambda x, y: x + y, first, second) == {"b": 11, "a": 22}
    assert list(tree.map(lambda x: x, first)) == ["b", "a"]
    assert tree.leaves({1: "x", "a": "y"}) == tree.leaves({"a": "y", 1: "x"})
    ordered = OrderedDict(b=1, a=2)
    assert tree.leaves(ordered) == [1, 2]
    assert tree.structure(ordered) != tree.structure(first)


def test_default_dicts_keep_their_factory() -> None:
    value = defaultdict(list, {"b": 1, "a": 2})
    again = tree.map(lambda x: x * 2, value)
    assert again == {"a": 4, "b": 2}
    assert again["c"] == []
    assert tree.paths(tree.structure(value), "x") == ["x['a']", "x['b']"]


def test_named_tuples_stay_what_they_are() -> None:
    state = State(1, Plain(2, None))
    assert tree.map(lambda x: x + 1, state) == State(2, Plain(3, None))
    assert tree.paths(tree.structure(state), "s") == ["s.mean", "s.var.x"]
    assert repr(tree.structure(state)) == "Structure(State(mean=*, var=Plain(x=*, y=None)))"


def test_other_classes_are_leaves() -> None:
    class Special(dict[str, int]):
        pass

    x = Tensor([1.0, 2.0])
    given = [x, Special(a=1), {1, 2}, "text"]
    assert all(a is b for a, b in zip(tree.leaves(given), given, strict=True))
    assert tree.structure(x) is tree.LEAF


def test_registered_classes() -> None:
    class Layer:
        def __init__(self, name: str, weight: Any) -> None:
            self.name, self.weight = name, weight

    layer = Layer("dense", 3)
    assert tree.leaves(layer) == [layer]
    tree.register(
        Layer,
        lambda layer: ((layer.weight,), layer.name),
        lambda name, children: Layer(name, *children),
        lambda name, place: ".weight",
    )
    doubled = tree.map(lambda w: w * 2, [layer, Layer("bias", 4)])
    assert [(d.name, d.weight) for d in doubled] == [("dense", 6), ("bias", 8)]
    assert tree.structure(layer) != tree.structure(Layer("bias", 3))
    assert tree.paths(tree.structure({"l": layer}), "m") == ["m['l'].weight"]
    with pytest.raises(DomainError, match="Layer"):
        tree.register(Layer, lambda x: ((), None), lambda _, __: None)
    with pytest.raises(DomainError, match="tuple"):
        tree.register(tuple, lambda x: (x, None), lambda _, c: tuple(c))


def test_a_registered_class_comes_apart_into_any_pair() -> None:
    class Layer:
        def __init__(self, weight: Any) -> None:
            self.weight = weight

    pair: Any = lambda layer: [[layer.weight], None]  # noqa: E731 - a list, where a tuple is asked
    tree.register(Layer, pair, lambda _, children: Layer(*children))
    assert tree.map(lambda w: w * 2, Layer(3)).weight == 6


@pytest.mark.parametrize("kind", [list, dict])
def test_a_tree_that_holds_itself_is_too_deep(kind: Any) -> None:
    inside: Any = kind()
    inside.update(a=inside) if kind is dict else inside.append(inside)
    with pytest.raises(RecursionError, match="maximum recursion depth exceeded"):
        tree.flatten(inside)


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ((1, 2), (1, 2, 3), ("x", "a tuple of 2", "a tuple of 3")),
        ((1, [2]), (1, (2,)), ("x[1]", "a list of 1", "a tuple of 1")),
        ({"a": 1}, {"b": 1}, ("x", "a dict with keys 'a'", "a dict with keys 'b'")),
        ({"a": {}}, {"a": 1}, ("x['a']", "a dict without keys", "a leaf")),
        ([None], [3], ("x[0]", "None", "a leaf")),
        (State(1, 2), State(1, [2]), ("x.var", "a leaf", "a list of 1")),
        (State(1, 2), (1, 2), ("x", "a State of 2", "a tuple of 2")),
    ],
)
def test_differences_name_the_place(first: Any, second: Any, wanted: Any) -> None:
    assert tree.difference(tree.structure(first), tree.structure(second), "x") == wanted


def test_errors_name_the_place_and_both_sides() -> None:
    with pytest.raises(ShapeError, match=r"at \['a'\]\[1\] the first tree has a leaf and tree 2 N"):
        tree.map(max, {"a": (1, 2)}, {"a": (1, None)})
    with pytest.raises(ShapeError, match=r"3 leaves for \(\*, \*\), which takes 2"):
        tree.unflatten(tree.structure((1, 2)), [1, 2, 3])
    with pytest.raises(ShapeError, match=r"in_axes has a tuple of 2 at \[0\] where the tree has a"):
        tree.spread(((0, 0),), tree.structure(((1, 2, 3),)), "in_axes")
    with pytest.raises(ShapeError, match="a leaf"):
        tree.spread({"a": 0}, tree.structure(1), "in_axes")
