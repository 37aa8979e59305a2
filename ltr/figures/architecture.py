"""Read from the code what the rooms of this package import, and draw it."""

import ast
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Curve
from scipy.optimize import isotonic_regression

from ltr.figures.drawing import BLUE, GREY, Drawing, page

PACKAGE = Path(__file__).resolve().parents[1]
_WIDE, _HIGH = 0.78, 0.76  # of a box, where columns, and neighbours in one, are 1 apart
_INCHES = 1.14, 0.6  # of a column, of a row
_ROOM = 0.5, 0.22  # above and below the middle of a box, of a line that passes its column
_TRIES = 40  # random orders to start from

Graph = Mapping[str, frozenset[str]]
Node = tuple[str, int]  # a room and its column; in an earlier one, the line that leads to it
Link = tuple[Node, Node]  # from a column to the next


@dataclass(frozen=True)
class Room:
    """A folder of the package, or a file at its top."""

    files: int
    lines: int
    imports: frozenset[str]  # other rooms


def imported(path: Path) -> set[str]:
    """The modules that a file imports, anywhere in it; ``ValueError`` for a relative import."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{path}: write the whole name of what is imported")
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def rooms() -> dict[str, Room]:
    """Every room by its name: ``losses`` is ``ltr/losses/``, ``errors`` is ``ltr/errors.py``."""
    files: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        files.setdefault(name, []).append(path)
    found = {}
    for name, paths in files.items():
        modules = {module for path in paths for module in imported(path)}
        others = {module.split(".")[1] for module in modules if module.startswith("ltr.")}
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
        found[name] = Room(len(paths), lines, frozenset(others - {name}))
    return found


def reduced(graph: Graph) -> dict[str, frozenset[str]]:
    """The edges that do not follow from others, of a graph without circles.

    >>> sorted(reduced({"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset()})["a"])
    ['b']
    """

    @cache
    def reached(name: str) -> frozenset[str]:
        return graph[name].union(*map(reached, graph[name]))

    return {name: ends.difference(*map(reached, ends)) for name, ends in graph.items()}


def architecture() -> Drawing:
    """Rooms as boxes, each to the right of those that import it, with arrows to its imports."""
    known = {name: room for name, room in rooms().items() if not name.startswith("__")}
    base = [n for n, room in known.items() if not room.imports and not (PACKAGE / n).is_dir()]
    graph = {n: room.imports.difference(base) for n, room in known.items() if n not in base}
    drawn = reduced(graph)
    column = _columns(drawn)
    links = _links(drawn, column)
    places = _places(_ordered(column, links), links, column)
    data = pd.DataFrame(
        [
            (name, room.files, room.lines, other, other in drawn.get(name, ()))
            for name, room in known.items()
            for other in sorted(room.imports) or [""]
        ],
        columns=["room", "files", "lines", "imports", "drawn"],
    )
    right, down = (max(place[i] for place in places.values()) for i in (0, 1))
    arrows = f"{sum(map(len, drawn.values()))} of {sum(map(len, graph.values()))}"
    figure = page(
        "What imports what",
        "A box is a folder of ltr/, or a file at its top, with its files and lines; darker = more "
        "lines. An arrow goes from a room to one that it imports. Those that follow from others "
        f"are left out ({arrows} are drawn): a room may also import what its arrows lead to by way "
        f"of other rooms. Not drawn: {' and '.join(base)}, which most rooms import.",
        width=_INCHES[0] * (right + 1),
        height=0.25 + _INCHES[1] * (down + 0.8),
    )
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set(xlim=(-0.45, right + 0.45), ylim=(down + 0.5, -0.5))
    _draw_links(axes, links, places, column)
    most = max(room.lines for room in known.values())
    for name in drawn:
        _draw_box(axes, name, known[name], places[name, column[name]], known[name].lines / most)
    files, lines = sum(r.files for r in known.values()), sum(r.lines for r in known.values())
    text = f"{len(known)} rooms, {files} files, {lines:,} lines; {arrows} imports are drawn"
    return Drawing(figure, data, text)


def _columns(graph: Graph) -> dict[str, int]:
    """As far left as what imports a room allows; 0 is imported by none."""

    @cache
    def column(name: str) -> int:
        return max((column(user) + 1 for user in graph if name in graph[user]), default=0)

    return {name: column(name) for name in graph}


def _links(graph: Graph, column: Mapping[str, int]) -> list[Link]:
    """Arrows cut at the columns that they pass; arrows to the same room share a passage."""
    found = set()
    for name, ends in graph.items():
        for end in ends:
            passed = [(end, place) for place in range(column[name] + 1, column[end] + 1)]
            found |= set(pairwise([(name, column[name]), *passed]))
    return sorted(found)


def _ordered(column: Mapping[str, int], links: Sequence[Link]) -> list[list[Node]]:
    """The nodes of each column from top to bottom, with few crossings and short arrows."""
    beside = _beside(links)
    nodes = sorted({*column.items(), *beside})
    columns = [[node for node in nodes if node[1] == i] for i in range(max(column.values()) + 1)]
    pairs = [(a, b) for a, b in combinations(links, 2) if a[0][1] == b[0][1]]
    chance, best, least = random.Random(0), columns, float("inf")
    for _ in range(_TRIES):
        columns = [chance.sample(nodes, len(nodes)) for nodes in columns]
        for _ in range(8):
            height = {n: i - len(nodes) / 2 for nodes in columns for i, n in enumerate(nodes)}
            crossings = sum(
                (height[a] - height[b]) * (height[to_a] - height[to_b]) < 0
                for (a, to_a), (b, to_b) in pairs
            )
            cost = crossings + 0.05 * sum(abs(height[a] - height[b]) for a, b in links)
            if cost < least:
                best, least = [list(nodes) for nodes in columns], cost
            for nodes in columns:
                nodes.sort(key=lambda n: fmean(height[o] for o in beside.get(n, [n])))
                height |= {n: i - len(nodes) / 2 for i, n in enumerate(nodes)}
    return best


def _beside(links: Iterable[Link]) -> dict[Node, list[Node]]:
    found: dict[Node, list[Node]] = {}
    for start, end in links:
        found.setdefault(start, []).append(end)
        found.setdefault(end, []).append(start)
    return found


def _places(
    columns: Sequence[Sequence[Node]], links: Iterable[Link], column: Mapping[str, int]
) -> dict[Node, tuple[float, float]]:
    """Each node as near as possible to the height of its neighbours; 0 is the top."""
    beside = _beside(links)
    height = {n: i - len(nodes) / 2 for nodes in columns for i, n in enumerate(nodes)}
    for _ in range(300):
        for nodes in columns:
            half = np.array([_ROOM[column[name] != at] for name, at in nodes])
            apart = np.cumsum(half) + np.cumsum(half) - half  # of the first and each
            # A box without arrows stays in the middle: by itself it would be left behind.
            wish = np.array([_mean(n, height, beside.get(n, [*height]), column) for n in nodes])
            settled = isotonic_regression(wish - apart).x + apart
            height.update(zip(nodes, settled.tolist(), strict=True))
    top = min(height.values())
    return {node: (node[1], y - top) for node, y in height.items()}


def _mean(
    node: Node, height: Mapping[Node, float], beside: Sequence[Node], column: Mapping[str, int]
) -> float:
    """Height of the neighbours; a line that passes several columns is pulled straight."""
    weights = [1 if column[node[0]] == node[1] or column[o[0]] == o[1] else 50 for o in beside]
    return fmean([height[other] for other in beside], weights)


def _draw_links(
    axes: Axes, links: Sequence[Link], places: Mapping[Node, tuple[float, float]],
    column: Mapping[str, int],
) -> None:  # fmt: skip
    """Curves from box to box; those that leave or reach a box do so side by side."""
    out: dict[Link, float] = {}
    into: dict[Link, float] = {}
    for sides, mine, other in ((out, 0, 1), (into, 1, 0)):
        for node in {link[mine] for link in links}:
            here = sorted(
                (link for link in links if link[mine] == node),
                key=lambda link: places[link[other]][1],
            )
            step = min(0.16, 0.8 * _HIGH / len(here)) if column[node[0]] == node[1] else 0
            sides |= {link: (i - (len(here) - 1) / 2) * step for i, link in enumerate(here)}
    for link in links:
        (x, y), (to_x, to_y) = (places[node] for node in link)
        x, to_x = x + _WIDE / 2, to_x - _WIDE / 2
        y, to_y, middle = y + out[link], to_y + into[link], (x + to_x) / 2
        points = [(x, y), (middle, y), (middle, to_y), (to_x, to_y)]
        arrives = column[link[1][0]] == link[1][1]
        if not arrives:
            points += [(to_x + _WIDE, to_y)]
        codes = [Curve.MOVETO, *[Curve.CURVE4] * 3, *[Curve.LINETO] * (not arrives)]
        look = "-|>,head_length=2.8,head_width=1.3" if arrives else "-"
        axes.add_patch(
            FancyArrowPatch(
                path=Curve(points, codes), arrowstyle=look, color=GREY, linewidth=0.9, shrinkA=0,
                shrinkB=0, capstyle="butt", joinstyle="miter",
            )
        )  # fmt: skip


def _draw_box(axes: Axes, name: str, room: Room, place: tuple[float, float], share: float) -> None:
    x, y = place
    corner = x - _WIDE / 2, y - _HIGH / 2
    shade = colormaps["Blues"](0.06 + 0.3 * share)
    round_ = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch(corner, _WIDE, _HIGH, round_, fc=shade, ec=BLUE, lw=0.8))
    axes.text(x, y - 0.2, name, ha="center", va="center", fontsize=8.3, fontweight="bold")
    files = f"{room.files} file{'s' * (room.files > 1)}\n{room.lines:,} lines"
    axes.text(
        x, y + 0.15, files, ha="center", va="center", fontsize=7, color="#333333", linespacing=1.15
    )
