"""How many images and objects of each class every step trains on.

A leaked image brings its objects along, and the image it replaces takes its own away, so the shares
of the classes drift: a threat to validity that the paper names (Babu et al. 2025, section 8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.dlede.lesson import Draw, Split
from visleak.dlede.results import Makeup
from visleak.images.boxes import Boxes
from visleak.records import Int64


def makeup_of(split: Split, draws: Mapping[int, Sequence[Draw]]) -> Makeup | None:
    """Count the classes of the test set, and of the training set at each step.

    Classes are those of the boxes, without crowds, else the labels of whole images; images without
    a label count for none. All that some image shows are counted, however many there are.

    Args:
        split: the split.
        draws: by step, what each repetition trains on; one or more each.

    Returns:
        ``None`` where neither boxes nor labels are known, or no image shows anything.
    """
    found = _shown(split)
    if found is None:
        return None
    names, train, test, boxed = found
    everywhere = train.count(False) + test.count(False)
    there: list[int] = np.flatnonzero(everywhere).tolist()
    if not there:
        return None

    def trained(objects: bool) -> tuple[tuple[float, ...], ...]:
        means = (
            np.mean([_trained(train, test, draw, objects) for draw in drawn], axis=0)
            for drawn in draws.values()
        )
        return tuple(tuple(mean[there].tolist()) for mean in means)

    return Makeup(
        classes=tuple(names[at] for at in there),
        test_images=tuple(test.count(False)[there].tolist()),
        test_objects=tuple(test.count(True)[there].tolist()) if boxed else (),
        steps=tuple(draws),
        images=trained(False),
        objects=trained(True) if boxed else (),
    )


@dataclass(frozen=True)
class _Shown:
    """What the images of a set show: one row a class of an image.

    Attributes:
        image, label: ``int64``, which image, and which class.
        number: ``int64``, how many objects of it.
        classes: how many there are.
        size: images in the set.
    """

    image: Int64
    label: Int64
    number: Int64
    classes: int
    size: int

    def count(self, objects: bool, rows: Int64 | None = None) -> Int64:
        """Return how many images (of some rows) show each class, or how many objects of it."""
        some = np.zeros(self.size, np.bool_)
        some[slice(None) if rows is None else rows] = True
        weights = some[self.image] * (self.number if objects else 1)
        return np.bincount(self.label, weights, self.classes).astype(np.int64)


def _shown(split: Split) -> tuple[Sequence[str], _Shown, _Shown, bool] | None:
    """Return the classes, what both sets show of them, and whether that is objects."""
    if split.train_boxes is not None and split.test_boxes is not None:
        names: Sequence[str] = split.train_boxes.names
        return names, _of_boxes(split.train_boxes), _of_boxes(split.test_boxes), True
    columns = [split.train.labels, split.test.labels]
    if columns[0] is None or columns[1] is None:
        return None
    values = pa.concat_arrays(columns).unique().drop_null().sort()
    train, test = (_of_labels(column, values) for column in columns)
    return values.to_pylist(), train, test, False


def _of_boxes(boxes: Boxes) -> _Shown:
    real = ~boxes.crowd & (boxes.label >= 0)
    classes = len(boxes.names)
    both, number = np.unique(boxes.image[real] * classes + boxes.label[real], return_counts=True)
    image, label = np.divmod(both, max(classes, 1))
    return _Shown(image, label, number, classes, boxes.images)


def _of_labels(column: pa.StringArray, values: pa.StringArray) -> _Shown:
    codes = pc.fill_null(pc.index_in(column, value_set=values), -1).to_numpy(zero_copy_only=False)
    image = np.flatnonzero(codes >= 0)
    label = codes[image].astype(np.int64)
    return _Shown(image, label, np.ones(len(image), np.int64), len(values), len(codes))


def _trained(train: _Shown, test: _Shown, draw: Draw, objects: bool) -> Int64:
    """Return how many images or objects of each class a draw trains on."""
    return train.count(objects, draw.kept) + test.count(objects, draw.leaked)
