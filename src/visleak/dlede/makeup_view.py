"""How the classes of the training set move as test images leak into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from visleak.dlede.results import DLeDe, Makeup
from visleak.markup import Grid

#: Classes that a table has room for; a file has all.
CLASSES: Final = 20

#: Steps that stand side by side.
STEPS: Final = 4


def makeup_grids(result: DLeDe) -> list[Grid]:
    """Return a table of images and one of objects, most drifting classes first."""
    found = result.makeup
    if found is None or not found.classes:
        return []
    grids = [_grid(found, "images", found.test_images, found.images)]
    if found.objects:
        grids.append(_grid(found, "objects", found.test_objects, found.objects))
    return grids


def drift(found: Makeup) -> list[tuple[str, float, float]]:
    """Return each class with its share at the first and at the last step, most changed first.

    Shares are of objects where there are any, else of images.
    """
    counts = found.objects or found.images
    first, last = _shares(counts[0]), _shares(counts[-1])
    rows = list(zip(found.classes, first, last, strict=True))
    return sorted(rows, key=lambda row: (-abs(row[2] - row[1]), row[0]))


def drift_line(found: Makeup) -> str:
    """Return a line about the class whose share moves most."""
    name, first, last = drift(found)[0]
    what = "objects" if found.objects else "images"
    if f"{100 * first:.2f}" == f"{100 * last:.2f}":
        return "leaks leave the shares of the classes in training as they are"
    return (
        f"leaks move the share of {name} most: from {100 * first:.2f} to {100 * last:.2f} % of the"
        f" training {what} at {found.steps[-1]} %"
    )


def _shares(counts: Sequence[float]) -> list[float]:
    whole = sum(counts)
    return [count / whole if whole else 0.0 for count in counts]


def _grid(found: Makeup, what: str, test: Sequence[int], counts: Sequence[Sequence[float]]) -> Grid:
    order = [found.classes.index(name) for name, *_ in drift(found)]
    shown, every = order[:CLASSES], len(order)
    places = _steps(len(found.steps))
    shares = [_shares(row) for row in counts]
    rows = []
    for at in shown:
        cells = [found.classes[at], f"{test[at]:,}"]
        cells += [f"{counts[place][at]:,.1f}".removesuffix(".0") for place in places]
        moved = 100.0 * (shares[-1][at] - shares[0][at])
        rows.append([*cells, f"{round(moved, 2) + 0.0:+.2f}" if round(moved, 2) else "0.00"])
    title = f"{what.capitalize()} of each class in the test set and in training, by step"
    if len(shown) < every:
        title += f"; {len(shown)} of {every:,} classes, makeup.csv has all"
    header = ["class", "test", *(f"train at {found.steps[place]} %" for place in places)]
    return Grid(title, [*header, "drift, points"], rows)


def _steps(count: int) -> list[int]:
    """Return the places of the steps that are shown: the first ones, and the last.

    >>> _steps(3), _steps(11)
    ([0, 1, 2], [0, 1, 2, 10])
    """
    return list(range(count)) if count <= STEPS else [*range(STEPS - 1), count - 1]
