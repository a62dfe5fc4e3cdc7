"""Recipes that part one set into training and test images: those of the papers, and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.images.folder import first_folder
from visleak.records import Bool, ImageSet, Int64

#: Images of KITTI's training part, and how many of them train (Babu et al. 2025, section 5).
KITTI: Final = (7481, 5231)

#: Recordings of Cirrus, and how many of them train.
CIRRUS: Final = (7, 5)

#: Groups whose totals are looked at exactly; of more, these are decided last.
EXACTLY: Final = 512


@dataclass(frozen=True, slots=True)
class Recipe:
    """A way to part a set.

    Attributes:
        shown: how it is written.
        meaning: one line for the help.
        rows: from the set and what stands after the name to which images are the test set.
        arguments: least and largest number of arguments.
    """

    shown: str
    meaning: str
    rows: Callable[[ImageSet, Sequence[str]], Bool]
    arguments: tuple[int, int] = (0, 0)


def parted(images: ImageSet, text: str) -> Bool:
    """Return which images of a set are its test set by a recipe; some are, and some are not.

    Args:
        images: the set.
        text: ``NAME[:ARGUMENT[:ARGUMENT]]``, one of :data:`RECIPES`.

    Raises:
        UsageError: there is no such recipe, its arguments are wrong, or it does not fit the set.
    """
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
            f"--split kitti parts the {whole:,} labelled images of KITTI; set {images.name!r} has"
            f" {len(images):,}; use first:N to train on the first N of it"
        )
    return np.arange(whole) >= train


def _cirrus(images: ImageSet, arguments: Sequence[str]) -> Bool:
    groups = groups_of(images, folders=True)
    whole, train = CIRRUS
    if groups.max() + 1 != whole:
        raise UsageError(
            f"--split cirrus parts {whole} recordings; set {images.name!r} has"
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
            f"--split groups: all images of set {images.name!r} are of one group; there must be two"
        )
    return whole_groups(groups, size, _generator(arguments, "groups"))


#: Name to recipe.
RECIPES: Final = {
    "kitti": Recipe(
        "kitti", "KITTI's 7,481 images in order: the first 5,231 train, the last 2,250 test", _kitti
    ),
    "cirrus": Recipe(
        "cirrus", "Cirrus' 7 recordings in order: the first five train, the last two test", _cirrus
    ),
    "first": Recipe("first:N", "the first N images train, the rest test", _first, (1, 1)),
    "first-groups": Recipe(
        "first-groups:N", "the first N groups train, the rest test", _first_groups, (1, 1)
    ),
    "random": Recipe(
        "random:SHARE[:SEED]",
        "SHARE of the images test, drawn at random: of video, frames of a recording come apart",
        _random,
        (1, 2),
    ),
    "groups": Recipe(
        "groups:SHARE[:SEED]",
        "whole groups test, drawn at random, as near as can be to SHARE of the images",
        _groups,
        (1, 2),
    ),
}


def groups_of(images: ImageSet, folders: bool = False) -> Int64:
    """Return the group of each image as a number; groups are numbered as they first appear.

    Args:
        images: the set.
        folders: a set without groups is grouped by the first folders of its ids.

    Raises:
        UsageError: the group of an image is not known.
    """
    names: list[str | None]
    if images.groups is not None:
        names = images.groups.to_pylist()
    elif folders:
        names = [first_folder(id_) for id_ in images.ids.to_pylist()]
    else:
        names = [None] * len(images)
    unknown = names.count(None)
    if unknown:
        example = images.ids[names.index(None)].as_py()
        raise UsageError(
            f"the groups of {unknown:,} of {len(names):,} images of set {images.name!r} are not"
            f" known, such as {example!r}; give --group /REGEX/ on the id"
        )
    place: dict[str | None, int] = {}
    return np.array([place.setdefault(name, len(place)) for name in names], np.int64)


def whole_groups(groups: npt.ArrayLike, size: int, rng: np.random.Generator) -> Bool:
    """Choose random whole groups whose images together are as near as possible to a number.

    Every choice that is as near as any has a chance. The groups are gone through in random order,
    and each is taken with the chance that leaves the rest as probable, unless one of both ways
    leads to no such number any more. Of more than :data:`EXACTLY` groups, the nearest number is
    looked for by the last of them only.

    Args:
        groups: (n,), what each image's group is called; two groups or more.
        size: number of images that is asked for.
        rng: random numbers.

    Returns:
        ``bool`` (n,): the images of the chosen groups; of one group at least, and not of all.

    Raises:
        ValueError: there are fewer than two groups.
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
    """Choose weights whose sum is nearest to a size, among sums from lowest to highest.

    Bit s of ``sums[k]`` says whether some of the first k weights add up to s.
    """
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
    """Return a number of images or groups that leaves some over."""
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text) < whole:
        raise UsageError(
            f"--split {name}:N takes a whole number from 1 to {whole - 1:,}, for there are"
            f" {whole:,} {what}; got {text!r}"
        )
    return int(text)


def _size(arguments: Sequence[str], images: int, name: str) -> int:
    """Return how many images a share is: halves up, one at least, and not all."""
    text = arguments[0]
    percent = text.endswith("%")
    try:
        share = float(text.removesuffix("%")) / (100 if percent else 1)
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
