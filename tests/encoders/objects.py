"""Objects with one method, for tests to import."""

from pathlib import Path

import numpy as np


class Means:
    """Mean and spread of each channel."""

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def encode(self, images):
        assert isinstance(images, list)
        rows = []
        for image in images:
            assert image.dtype == np.uint8
            assert image.shape[2] == 3
            values = image.reshape(-1, 3) * self.gain + 1
            rows.append([*values.mean(axis=0), *values.std(axis=0)])
        return np.array(rows)


class Unpicklable(Means):
    """Holds what cannot be stored."""

    def __init__(self) -> None:
        super().__init__()
        self.held = (n for n in range(3))


class Trap:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.file,)
