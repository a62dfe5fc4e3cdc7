"""Recipes that divide one set into training and test images: the papers', and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.dlede.draw import Split, divided, joined
from visleak.documents import digest_of
from visleak.errors import UsageError
from visleak.formats import boxes_of
from visleak.formats.boxes import joined_boxes
from visleak.formats.listing import first_folder
from visleak.records import Bool, ImageSet, Int64

#: Fewest clean splits: the variation of fewer is not known; and draws tried per clean split, since
#: some may be equal.
LEAST_CLEAN: Final = 3
TRIES: Final = 20
#: Images of KITTI's training part, and how many of them train (Babu et al. 2025, section 5).
KITTI: Final = (7481, 5231)
CIRRUS: Final = (7, 5)  # recordings of Cirrus, and how many of them train
EXACTLY: Final = 512  # groups whose totals are enumerated exactly; of more, these are decided last


@dataclass(frozen=True, slots=True)
class Recipe:
    """A way to divide a set, which returns its test images."""

    shown: str  # its syntax
    rows: Callable[[ImageSet, Sequence[str]], Bool]
    arguments: tuple[int, int] = (0, 0)  # least and largest number of them


def divided_by(images: ImageSet, text: str) -> Bool:
    """Return the test images of a set by a recipe; neither none nor all."""
    name, *arguments = text.split(":")
    recipe = RECIPES.get(name)
    if recipe is None:
        shown = ", ".join(each.shown for each in RECIPES.values())
        raise UsageError(f"--split is one of {shown}; got {text!r}")
    least, most = recipe.arguments
    if not least <= len(arguments) <= most or "" in arguments:
        raise UsageError(f"--split {name} is written {recipe.shown}; got {text!r}")
    if len(images) < 2:
        raise UsageError(f"set {images.name!r} holds {len(images)} images; a split needs two")
    return recipe.rows(images, arguments)


def _kitti(images: ImageSet, arguments: Sequence[str]) -> Bool:
    whole, train = KITTI
    if len(images) != whole:
        raise UsageError(
            f"--split kitti divides the {whole:,} labelled images of KITTI; set {images.name!r} has"
            f" {len(images):,}; use first:N to train on the first N of it"
        )
    return np.arange(whole) >= train


def _cirrus(images: ImageSet, arguments: Sequence[str]) -> Bool:
    groups = groups_of(images, folders=True)
    whole, train = CIRRUS
    if groups.max() + 1 != whole:
        raise UsageError(
            f"--split cirrus divides {whole} recordings; set {images.name!r} has"
            f" {groups.max() + 1:,}; use first-groups:N to train on the first N of them"
        )
    return groups >= train


def _first(images: ImageSet, arguments: Sequence[str]) -> Bool:
    return np.arange(len(images)) >= _number(arguments[0], len(images), "images", "first")


def _first_groups(images: ImageSet, arguments: Sequence[str]) -> Bool:
    groups = groups_of(images)
    return groups >= _number(arguments[0], int(groups.max()) + 1, "groups", "first-groups")


def _random(images: ImageSet, arguments: Sequence[str]) -> Bool:
    size = _size(arguments, len(images), "random")
    test = np.zeros(len(images), np.bool_)
    test[_generator(arguments, "random").permutation(len(images))[:size]] = True
    return test


def _groups(images: ImageSet, arguments: Sequence[str]) -> Bool:
    groups = groups_of(images)
    size = _size(arguments, len(images), "groups")
    if not groups.max():
        raise UsageError(
            f"--split groups: all images of set {images.name!r} are of one group; it needs two or"
            " more"
        )
    return whole_groups(groups, size, _generator(arguments, "groups"))


#: Name to recipe; ``docs/dlede.md`` explains each.
RECIPES: Final = {
    "kitti": Recipe("kitti", _kitti),
    "cirrus": Recipe("cirrus", _cirrus),
    "first": Recipe("first:N", _first, (1, 1)),
    "first-groups": Recipe("first-groups:N", _first_groups, (1, 1)),
    "random": Recipe("random:SHARE[:SEED]", _random, (1, 2)),
    "groups": Recipe("groups:SHARE[:SEED]", _groups, (1, 2)),
}


def split_by(images: ImageSet, recipe: str) -> Split:
    """Return a set divided into training and test images by a recipe.

    Args:
        images: the set.
        recipe: such as ``random:20%`` or ``groups:0.2:SEED``, see :data:`RECIPES`.

    Raises:
        UsageError: there is no such recipe, or it does not fit the set.
        VisleakError: annotations are damaged.
    """
    tested = divided_by(images, recipe)
    return divided(images, boxes_of(images), np.flatnonzero(~tested), np.flatnonzero(tested))


def clean_splits(split: Split, count: int, seed: int) -> list[tuple[Split, dict[str, int]]]:
    """Return different splits of the same images by whole groups, with the sizes of each.

    Their test sets are about as large as that of the split, their training sets no larger.
    """
    if count < LEAST_CLEAN:
        raise UsageError(
            f"--calibrate needs {LEAST_CLEAN} clean splits or more, because the variation of fewer"
            f" is not known; got {count}"
        )
    train, test = split.train, split.test
    pool = joined(train, np.arange(len(train)), test, np.arange(len(test)))
    groups = groups_of(pool)
    if not groups.max():
        raise UsageError(
            "--calibrate divides the images by whole groups, and all are of one group; give"
            " --group so that there are two or more"
        )
    boxes = None
    if split.train_boxes is not None and split.test_boxes is not None:
        boxes = joined_boxes(split.train_boxes, split.test_boxes)
    found: dict[str, tuple[Split, dict[str, int]]] = {}
    for number in range(1, TRIES * count + 1):
        # distinct from the draws of the chains, which begin with the seed and a repetition
        rng = np.random.default_rng([seed, number, 0, 0, 1])
        tested = whole_groups(groups, len(test), rng)
        rows, held = np.flatnonzero(~tested), np.flatnonzero(tested)
        if len(rows) > len(train):
            rows = np.sort(rng.permutation(rows)[: len(train)])
        made = divided(pool, boxes, rows, held, (train.name, test.name))
        sizes = {}
        for which, part in (("test", held), ("training", rows)):
            sizes[f"{which}_images"] = len(part)
            sizes[f"{which}_groups"] = len(np.unique(groups[part]))
        found.setdefault(digest_of(made.test.ids.to_pylist()), (made, sizes))
        if len(found) == count:
            return list(found.values())
    raise UsageError(
        f"--calibrate {count}: only {len(found)} different clean splits of this size were found;"
        " there are too few groups"
    )


def groups_of(images: ImageSet, folders: bool = False) -> Int64:
    """Return the group of each image as a number; groups are numbered as they first appear."""
    names: list[str | None] = [None] * len(images)
    if images.groups is not None:
        names = images.groups.to_pylist()
    elif folders:
        names = [first_folder(id_) for id_ in images.ids.to_pylist()]
    if unknown := names.count(None):
        example = images.ids[names.index(None)].as_py()
        raise UsageError(
            f"the groups of {unknown:,} of {len(names):,} images of set {images.name!r} are not"
            f" known, such as {example!r}; give --group /REGEX/ on the id"
        )
    place: dict[str | None, int] = {}
    return np.array([place.setdefault(name, len(place)) for name in names], np.int64)


def whole_groups(groups: npt.ArrayLike, size: int, rng: np.random.Generator) -> Bool:
    """Choose random whole groups whose images together are as close as possible to a number.

    Every equally close choice is possible: groups are visited in random order, and each is taken
    with the probability that keeps the rest equally probable. Of more than :data:`EXACTLY` groups,
    only the last are searched for the closest number.
    """
    _, codes, weights = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    if len(weights) < 2:
        raise ValueError("there must be two groups or more to choose from")
    order = rng.permutation(len(weights))
    taken = np.zeros(len(weights), np.bool_)
    early, late = order[:-EXACTLY], order[-EXACTLY:]
    left, rest = size, len(codes)
    for group in early:
        weight = int(weights[group])
        taken[group] = weight <= left and rng.random() * rest < left
        left, rest = left - weight * bool(taken[group]), rest - weight
    # neither no group at all nor all of them
    lowest = 0 if taken.any() else 1
    highest = rest if not taken[early].all() else rest - 1
    taken[late] = _nearest(weights[late], left, lowest, highest, rng)
    return np.asarray(taken[codes.reshape(-1)])


def _nearest(
    weights: Int64, size: int, lowest: int, highest: int, rng: np.random.Generator
) -> Bool:
    """Choose weights whose sum, from lowest to highest, is closest to a size."""
    sums = [1]
    for weight in weights.tolist():
        sums.append(sums[-1] | sums[-1] << weight)
    bits = np.frombuffer(sums[-1].to_bytes(sums[-1].bit_length() // 8 + 1, "little"), np.uint8)
    reached = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
    reached = reached[(reached >= lowest) & (reached <= highest)]
    near = reached[np.abs(reached - size) == np.abs(reached - size).min()]
    left = int(rng.choice(near))
    taken = np.zeros(len(weights), np.bool_)
    rest = int(weights.sum())
    for at in range(len(weights) - 1, -1, -1):
        weight = int(weights[at])
        without = sums[at] >> left & 1
        within = weight <= left and sums[at] >> (left - weight) & 1
        taken[at] = within and (not without or rng.random() * rest < left)
        left, rest = left - weight * bool(taken[at]), rest - weight
    return taken


def _number(text: str, whole: int, what: str, name: str) -> int:
    """Return a number of images or groups that is below their total."""
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text) < whole:
        raise UsageError(
            f"--split {name}:N takes a whole number from 1 to {whole - 1:,}, for there are"
            f" {whole:,} {what}; got {text!r}"
        )
    return int(text)


def _size(arguments: Sequence[str], images: int, name: str) -> int:
    """Return the number of images of a share: halves up, at least one, and not all."""
    text = arguments[0]
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise UsageError(
            f"--split {name}:SHARE is the share of the test images, above 0 and below 1, such as"
            f" {name}:0.2 or {name}:20%; got {text!r}"
        )
    return min(max(math.floor(images * share + 0.5), 1), images - 1)


def _generator(arguments: Sequence[str], name: str) -> np.random.Generator:
    text = arguments[1] if len(arguments) > 1 else "0"
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"--split {name}:SHARE:SEED takes a whole number as seed; got {text!r}")
    return np.random.default_rng(int(text))
