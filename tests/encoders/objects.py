"""Objects with one method, for tests to import."""

from pathlib import Path

import numpy as np


class Means:
    """Mean and spread of each channel."""

    def __init__(self, gain=1.0):
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


class Trap:
    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)
