"""Layout of a graph on a page: layers inside nested boxes, one box for each scope.

An edge leads to a lower layer of the box that contains both ends. A layer's order places nodes near their neighbours
(the barycentre method of Sugiyama, Tagawa and Toda, 1981). This module determines only the order. The page computes
coordinates, so that boxes can be opened and closed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

WIDEST = 8
"""Most items of a row; wider layers take several rows."""
SWEEPS = 4
"""Sweeps that improve the order within layers, down and up: later ones hardly change it."""

Path = tuple[str, ...]
Item = Hashable


@dataclass
class Box:
    """A scope: its name, contents, and rows. An item is a node's number, or ``-1 - n`` for box ``n``.

    ``items`` are the numbers of the nodes inside: their average determines a box's place.
    """

    name: str
    items: dict[int, list[int]] = field(default_factory=dict)
    edges: set[tuple[int, int]] = field(default_factory=set)
    rows: list[list[int]] = field(default_factory=list)


def boxes(inputs: Sequence[Sequence[int]], paths: Sequence[Path]) -> list[Box]:
    """Build the boxes of nodes that read ``inputs`` and are in scopes ``paths``; the first one contains all others."""
    found: list[Box] = [Box("")]
    numbers: dict[Path, int] = {(): 0}
    for n, path in enumerate(paths):
        found[_home(path, found, numbers)].items[n] = [n]
        for depth in range(len(path)):
            outer, inner = numbers[path[:depth]], numbers[path[: depth + 1]]
            found[outer].items.setdefault(-1 - inner, []).append(n)
    for n, read in enumerate(inputs):
        for m in read:
            _join(m, n, paths, found, numbers)
    for box in found:
        box.rows = _rows(box)
    return found


def _home(path: Path, found: list[Box], numbers: dict[Path, int]) -> int:
    """The number of the box of a scope; creates it, with enclosing boxes, on first use."""
    if path not in numbers:
        _home(path[:-1], found, numbers)
        numbers[path] = len(found)
        found.append(Box(path[-1]))
    return numbers[path]


def _join(m: int, n: int, paths: Sequence[Path], found: list[Box], numbers: dict[Path, int]) -> None:
    """Add an edge in the innermost box that contains both ends, between their representatives there."""
    depth = 0
    for a, b in zip(paths[m], paths[n], strict=False):
        if a != b:
            break
        depth += 1
    ends = [node if len(paths[node]) == depth else -1 - numbers[paths[node][: depth + 1]] for node in (m, n)]
    if ends[0] != ends[1]:
        found[numbers[paths[m][:depth]]].edges.add((ends[0], ends[1]))


def _rows(box: Box) -> list[list[int]]:
    order = {item: sum(nodes) / len(nodes) for item, nodes in box.items.items()}
    forward = sorted(((a, b) for a, b in box.edges if order[a] < order[b]), key=lambda e: order[e[1]])
    items = sorted(box.items, key=order.__getitem__)
    depth = dict.fromkeys(items, 0)
    for a, b in forward:
        depth[b] = max(depth[b], depth[a] + 1)
    layers: list[list[int]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for item in items:
        layers[depth[item]].append(item)
    _untangle(layers, forward)
    return [layer[at : at + WIDEST] for layer in layers for at in range(0, len(layer), WIDEST)]


def _untangle(layers: list[list[int]], edges: Sequence[tuple[int, int]]) -> None:
    """Order each layer by the mean position of its items' neighbours, sweeping down and up."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for a, b in edges:
        above.setdefault(b, []).append(a)
        below.setdefault(a, []).append(b)
    place: dict[int, float] = {}
    for layer in layers:
        _spread(layer, place)
    for sweep in range(SWEEPS):
        joined = below if sweep % 2 else above
        for layer in reversed(layers) if sweep % 2 else layers:
            means = {x: sum(place[y] for y in joined[x]) / len(joined[x]) if x in joined else place[x] for x in layer}
            layer.sort(key=means.__getitem__)
            _spread(layer, place)


def _spread(layer: Sequence[int], place: dict[int, float]) -> None:
    """Positions of a layer's items from 0 to 1, so that layers of several widths are comparable."""
    for n, item in enumerate(layer):
        place[item] = (n + 0.5) / len(layer)
