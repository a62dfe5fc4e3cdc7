"""Data sets of Hugging Face without the images that leak."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from datasets import Dataset, DatasetDict

from visleak.auditing import audit
from visleak.errors import UsageError
from visleak.formats import open_image_set
from visleak.formats.request import canonical_split
from visleak.integrations.duplicates import leaking_rows
from visleak.records import GradeName

Data = TypeVar("Data", Dataset, DatasetDict)


def filter_leaks(data: Data, train: Dataset | None = None, *, grade: GradeName = "near") -> Data:
    """Return a data set without the test images that also occur in the training images.

    Args:
        data: the test images, or a ``DatasetDict`` with a split ``train``, whose other splits are
            filtered.
        train: the training images where ``data`` is a ``Dataset``.
        grade: the weakest grade that counts as a leak.

    Raises:
        UsageError: there are no training images.

    >>> fair = filter_leaks(load_dataset("imagefolder", data_dir="photos"))  # doctest: +SKIP
    """
    if not isinstance(data, DatasetDict):
        if train is None:
            raise UsageError("filter_leaks needs train: the data set that test images leak into")
        return _without_leaks(data, train, grade)
    sides = {canonical_split(name): name for name in data}
    if "train" not in sides:
        raise UsageError(f"the DatasetDict must have a split train; it has {', '.join(data)}")
    own = data[sides["train"]]
    return DatasetDict(
        {
            name: split if name == sides["train"] else _without_leaks(split, own, grade)
            for name, split in data.items()
        }
    )


def _without_leaks(test: Dataset, train: Dataset, grade: GradeName) -> Dataset:
    images = open_image_set(test, name="test")
    found = audit(images, open_image_set(train, name="train"), within=False)
    kept = np.setdiff1d(np.arange(len(test)), leaking_rows(found, images, grade=grade))
    return test.select(kept)
