"""Why sizes or class shares could not come out as asked, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from visleak.records import Int64
from visleak.remedy.balance import Balance, Deviation
from visleak.remedy.loads import Loads

#: Most obstacles that are told.
MOST: Final = 5


def obstacles(
    balance: Balance, loads: Loads, tolerance: float, called: Callable[[int], str]
) -> tuple[str, ...]:
    """Return why a balance misses its tolerance, one line each; nothing where it does not.

    First what no assignment could mend, then what was found to be the best.

    Args:
        balance: of the assignment.
        loads: of the components.
        tolerance: that was asked for.
        called: how a person calls a component, by its number.
    """
    misses = balance.misses(tolerance)
    if not misses:
        return ()
    lines = [*_oversized(balance, loads, tolerance, called)]
    classes = [each.class_ for each in misses if each.class_ is not None]
    for name in dict.fromkeys(classes):
        lines += _scarce(balance, loads, balance.classes.index(name), tolerance, called)
    # with two parts the one has what the other lacks: the worst of a kind says it
    worst = {miss.class_: miss for miss in reversed(misses)}
    for kind in dict.fromkeys(miss.class_ for miss in misses):
        lines.append(f"{worst[kind]}{_makeup(worst[kind], balance, loads, called)}")
    told = lines[:MOST]
    left = len(lines) - len(told)
    return (*told, *([f"and {left:,} more"] if left else []))


def _oversized(
    balance: Balance, loads: Loads, tolerance: float, called: Callable[[int], str]
) -> Iterator[str]:
    """Yield the components that are larger than any part may be."""
    allowed = balance.shares * balance.total * (1 + tolerance)
    roomy = int(np.argmax(allowed))
    for row in np.argsort(-loads.sizes, kind="stable")[:MOST].tolist():
        size = int(loads.sizes[row])
        if size - allowed[roomy] < 1:
            return
        yield (
            f"one component of {size:,} images ({called(row)}) is larger than part"
            f" {balance.parts[roomy]} allows by {size - int(allowed[roomy]):,}"
        )


def _scarce(
    balance: Balance, loads: Loads, name: int, tolerance: float, called: Callable[[int], str]
) -> Iterator[str]:
    """Yield why a class cannot be in every part as it should."""
    own = loads.classes == name
    owners = np.repeat(np.arange(len(loads.sizes)), np.diff(loads.begin))[own]
    counts, total = loads.counts[own], int(loads.counts[own].sum())
    if len(owners) < len(balance.parts):
        there = "component" if len(owners) == 1 else "components"
        yield (
            f"class {balance.classes[name]}: its {total:,} images are in {len(owners)} {there}"
            f" ({', '.join(called(int(row)) for row in owners)}), so {len(owners)} of"
            f" {len(balance.parts)} parts can have any"
        )
        return
    most = (total / balance.total + tolerance) * balance.shares * balance.total * (1 + tolerance)
    largest = int(np.argmax(counts))
    if counts[largest] - most.max() >= 1:
        part = balance.parts[int(np.argmax(most))]
        yield (
            f"class {balance.classes[name]}: one component ({called(int(owners[largest]))}) holds"
            f" {int(counts[largest]):,} of its {total:,} images, and part {part} allows"
            f" {int(most.max()):,}"
        )


def _makeup(miss: Deviation, balance: Balance, loads: Loads, called: Callable[[int], str]) -> str:
    """Return what a deviation is made of, and that nothing better was found."""
    own: Int64 = np.ones(len(loads.classes), np.bool_)
    what = "there are"
    if miss.class_ is not None:
        own = loads.classes == balance.classes.index(miss.class_)
        what = "it is in"
    owners = np.repeat(np.arange(len(loads.sizes)), np.diff(loads.begin))[own]
    sizes = loads.sizes[np.unique(owners)]
    largest = np.unique(owners)[int(np.argmax(sizes))]
    return (
        f"; {what} {len(sizes):,} components, the largest of {int(sizes.max()):,} images"
        f" ({called(int(largest))}), and no better assignment was found"
    )
