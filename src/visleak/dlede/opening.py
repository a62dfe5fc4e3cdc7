"""The split that is judged: two sets, or one set parted by a recipe, with boxes where known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visleak.dlede.lesson import Split
from visleak.dlede.recipes import parted
from visleak.errors import UsageError, VisleakError
from visleak.images.boxes import Boxes
from visleak.images.boxes_of import boxes_of
from visleak.images.choosing import chosen
from visleak.records import ImageSet


def split_of(test: ImageSet, train: ImageSet) -> Split:
    """Return the split of two sets, their boxes mapped to one list of classes.

    Args:
        test, train: the sets; with labels or boxes, or neither.

    Raises:
        UsageError: the sets have one name, or boxes of one do not go with those of the other.
        VisleakError: a set is empty, or its annotations are damaged.
    """
    for images in (test, train):
        if not len(images):
            raise VisleakError(f"set {images.name!r} holds no images")
    if test.name == train.name:
        raise UsageError(
            f"both sets are called {test.name!r}; name them: --test NAME=SOURCE --train NAME=SOURCE"
        )
    boxes = boxes_of(test), boxes_of(train)
    if boxes[0] is None and boxes[1] is None:
        return Split(train, test)
    if boxes[0] is None or boxes[1] is None:
        without = (test, train)[boxes.index(None)].name
        other = train.name if without == test.name else test.name
        raise UsageError(
            f"set {without!r} has no boxes, and set {other!r} has some; open both with their"
            " annotations (coco:, yolo: or kitti:), or both without"
        )
    if boxes[0].relative != boxes[1].relative:
        shares = (test, train)[not boxes[0].relative].name
        pixels = train.name if shares == test.name else test.name
        raise UsageError(
            f"boxes of set {shares!r} are shares of the picture (YOLO), those of set {pixels!r}"
            " pixels; give both sets in one format"
        )
    names = _names(test, boxes[0].names, train, boxes[1].names)
    return Split(train, test, _renamed(boxes[1], names), _renamed(boxes[0], names))


def _names(
    test: ImageSet, of_test: tuple[str, ...], train: ImageSet, of_train: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the classes of both: the training set's in their order, then what is left."""
    if of_test == of_train:
        return of_train
    for images, names in ((test, of_test), (train, of_train)):
        twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if twice is not None:
            raise UsageError(
                f"two classes of set {images.name!r} are called {twice!r}, and the other set has"
                " other classes, so that they cannot be matched by name; rename one"
            )
    return (*of_train, *(name for name in of_test if name not in of_train))


def _renamed(boxes: Boxes, names: Sequence[str]) -> Boxes:
    """Return boxes with another list of classes, which holds all of theirs."""
    if boxes.names == tuple(names):
        return boxes
    # the last place is that of -1: regions of no class
    place = np.array([*(names.index(name) for name in boxes.names), -1], np.int64)
    return Boxes(
        tuple(names),
        boxes.image,
        place[boxes.label],
        boxes.corners,
        boxes.crowd,
        boxes.images,
        boxes.relative,
    )


def split_by(images: ImageSet, recipe: str) -> Split:
    """Return a set parted into training and test images by a recipe.

    Args:
        images: the set.
        recipe: see :data:`visleak.dlede.recipes.RECIPES`.

    Raises:
        UsageError: there is no such recipe, or it does not fit the set.
        VisleakError: annotations are damaged.
    """
    test = parted(images, recipe)
    train_rows, test_rows = np.flatnonzero(~test), np.flatnonzero(test)
    boxes = boxes_of(images)
    return Split(
        train=chosen(images, train_rows, "train"),
        test=chosen(images, test_rows, "test"),
        train_boxes=None if boxes is None else boxes.taken(train_rows),
        test_boxes=None if boxes is None else boxes.taken(test_rows),
    )
