"""Where boxes go in a drawing: layers from top to bottom, short wires, few crossings.

The layered way of Sugiyama and others: a box lies below all that it reads; wires that pass layers
get a place in each of them; boxes of a layer are ordered by the mean of their neighbours, and then
drawn towards them as far as they do not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Box", "Layout", "Wire", "arrange"]

GAP_X: Final = 26.0
GAP_Y: Final = 46.0
_SWEEPS: Final = 6
_WIRE_WIDTH: Final = 10.0
# Wires through more layers than this are drawn straight: a place in each would cost too much.
_MOST_PLACES: Final = 60_000


@dataclass(slots=True)
class Box:
    """A box to place, or a wire's place in a layer; `x` is its centre, `y` its top."""

    width: float
    height: float
    layer: int = 0
    x: float = 0.0
    y: float = 0.0
    above: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Wire:
    """From one box to another, by the places between."""

    start: int
    stop: int
    places: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Layout:
    """Boxes and wires with their places, and the size of it all."""

    boxes: list[Box]
    wires: list[Wire]
    width: float
    height: float


def arrange(boxes: list[Box], wires: list[Wire], bottom: Sequence[int] = ()) -> Layout:
    """Place boxes; a wire leads from a box to one that comes later. `bottom` go to the end."""
    count = len(boxes)
    readers: list[list[int]] = [[] for _ in range(count)]
    for wire in wires:
        readers[wire.start].append(wire.stop)
    for index in range(count):
        for reader in readers[index]:
            boxes[reader].layer = max(boxes[reader].layer, boxes[index].layer + 1)
    # What only feeds lies right above those who read it: inputs beside a long chain, for one.
    fed = {wire.stop for wire in wires}
    for index in range(count):
        if index not in fed and readers[index]:
            boxes[index].layer = min(boxes[r].layer for r in readers[index]) - 1
    deepest = max((box.layer for box in boxes), default=0)
    for index in bottom:
        boxes[index].layer = deepest
    _thread(boxes, wires)
    layers: list[list[int]] = [[] for _ in range(deepest + 1)]
    for index, box in enumerate(boxes):
        layers[box.layer].append(index)
    _order(boxes, layers)
    width = _spread(boxes, layers)
    height = _stack(boxes, layers)
    return Layout(boxes, wires, width, height)


def _thread(boxes: list[Box], wires: list[Wire]) -> None:
    """Give wires a place in the layers that they pass; those from one box share theirs."""
    reach: dict[int, int] = {}
    for wire in wires:
        reach[wire.start] = max(reach.get(wire.start, 0), boxes[wire.stop].layer)
    places = sum(stop - boxes[start].layer for start, stop in reach.items())
    trunks: dict[int, list[int]] = {start: [] for start in reach}
    for wire in wires:
        trunk = trunks[wire.start]
        last = trunk[-1] if trunk else wire.start
        first = boxes[wire.start].layer + 1
        for layer in range(first + len(trunk), boxes[wire.stop].layer):
            if places > _MOST_PLACES:
                break
            boxes.append(Box(_WIRE_WIDTH, 0.0, layer))
            trunk.append(len(boxes) - 1)
            _join(boxes, last, len(boxes) - 1)
            last = len(boxes) - 1
        wire.places = trunk[: boxes[wire.stop].layer - first]
        _join(boxes, wire.places[-1] if wire.places else wire.start, wire.stop)


def _join(boxes: list[Box], upper: int, lower: int) -> None:
    boxes[upper].below.append(lower)
    boxes[lower].above.append(upper)


def _order(boxes: list[Box], layers: list[list[int]]) -> None:
    """Order each layer by where its neighbours are, downwards and upwards in turn."""
    place = {index: float(at) for layer in layers for at, index in enumerate(layer)}
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else layers[::-1]:
            means = {}
            for index in layer:
                near = boxes[index].above if down else boxes[index].below
                means[index] = sum(place[x] for x in near) / len(near) if near else place[index]
            layer.sort(key=means.__getitem__)
            for at, index in enumerate(layer):
                place[index] = float(at)


def _spread(boxes: list[Box], layers: list[list[int]]) -> float:
    """Draw boxes towards the mean of their neighbours; those of a layer keep their order."""
    for layer in layers:
        at = 0.0
        for index in layer:
            boxes[index].x = at + boxes[index].width / 2
            at += boxes[index].width + GAP_X
        for index in layer:
            boxes[index].x -= at / 2
    for sweep in range(_SWEEPS * 2):
        down = sweep % 2 == 0
        for layer in layers if down else layers[::-1]:
            wanted = []
            for index in layer:
                near = boxes[index].above if down else boxes[index].below
                wanted.append(_mean_of_kin(boxes, index, near))
            for index, x in zip(
                layer, _apart([boxes[i].width for i in layer], wanted), strict=True
            ):
                boxes[index].x = x
    left = min((box.x - box.width / 2 for box in boxes), default=0.0)
    for box in boxes:
        box.x -= left
    return max((box.x + box.width / 2 for box in boxes), default=0.0)


def _mean_of_kin(boxes: list[Box], index: int, near: list[int]) -> float:
    """Boxes follow boxes and wires follow wires: a wire beside a chain would bend the chain."""
    kin = [x for x in near if (boxes[x].height > 0) == (boxes[index].height > 0)] or near
    return sum(boxes[x].x for x in kin) / len(kin) if kin else boxes[index].x


def _apart(widths: list[float], wanted: list[float]) -> list[float]:
    """The nearest places to those wanted without overlaps: groups that touch move as one."""
    groups: list[tuple[float, float, list[int]]] = []  # left edge, width, members
    for index, (width, centre) in enumerate(zip(widths, wanted, strict=True)):
        left, total, members = centre - width / 2, width, [index]
        while groups and groups[-1][0] + groups[-1][1] + GAP_X > left:
            before, size, others = groups.pop()
            # Each member would be at its wanted place: the mean of both, by their numbers.
            left = (before * len(others) + (left - size - GAP_X) * len(members)) / (
                len(others) + len(members)
            )
            total = size + GAP_X + total
            members = others + members
        groups.append((left, total, members))
    found = [0.0] * len(widths)
    for left, _, members in groups:
        at = left
        for index in members:
            found[index] = at + widths[index] / 2
            at += widths[index] + GAP_X
    return found


def _stack(boxes: list[Box], layers: list[list[int]]) -> float:
    y = 0.0
    for layer in layers:
        tallest = max((boxes[index].height for index in layer), default=0.0)
        for index in layer:
            boxes[index].y = y + (tallest - boxes[index].height) / 2
            if not boxes[index].height:
                boxes[index].y = y + tallest / 2
        y += tallest + GAP_Y
    return max(y - GAP_Y, 0.0)
