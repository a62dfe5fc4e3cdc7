"""What guessing scores: a model that scores no more has not learned the task."""

from __future__ import annotations

from collections import Counter

from visleak.dlede.lesson import Split


def chance_levels(split: Split) -> dict[str, float]:
    """Return what the best guess scores without a look at the image, by metric.

    Of whole-image labels it is the most frequent class of the test set for the accuracy, the five
    most frequent for the top five, and for the macro F1 one over the number of classes, which
    no constant answer exceeds. Of boxes it is 0, as of all that is not named.

    Args:
        split: of whose test set the labels are counted.

    >>> import pyarrow as pa
    >>> from dataclasses import replace
    >>> from visleak.images import open_images
    >>> import numpy as np
    >>> images = open_images([np.zeros((8, 8, 3), np.uint8)] * 4, name="test")
    >>> images = replace(images, labels=pa.array(["a", "a", "a", "b"]))
    >>> chance_levels(Split(images, images))
    {'accuracy': 0.75, 'accuracy_top5': 1.0, 'f1': 0.5}
    """
    if split.test.labels is None or split.test_boxes is not None:
        return {}
    counts = Counter(split.test.labels.drop_null().to_pylist())
    if not counts:
        return {}
    shares = [count / counts.total() for _, count in counts.most_common()]
    return {
        "accuracy": shares[0],
        "accuracy_top5": min(1.0, sum(shares[:5])),
        "f1": 1.0 / len(shares),
    }
