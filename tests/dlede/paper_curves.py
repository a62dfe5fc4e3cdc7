"""The curves of Babu et al. 2025: mAP and F1 of Cirrus and KITTI, and what they print of them."""

from __future__ import annotations

import numpy as np

from visleak.dlede.judge.scores import Scores

STEPS = tuple(range(0, 101, 10))

#: Table 1, mean of 10 runs. At 20 % it prints an mAP of .701, the next row's.
CIRRUS = {
    "mAP": (0.486, 0.595, 0.679, 0.701, 0.736, 0.760, 0.783, 0.791, 0.815, 0.829, 0.835),
    "F1": (0.49, 0.57, 0.64, 0.67, 0.70, 0.72, 0.74, 0.75, 0.77, 0.78, 0.79),
}

#: Table 4.
KITTI = {
    "mAP": (0.852, 0.856, 0.866, 0.873, 0.881, 0.889, 0.898, 0.901, 0.905, 0.913, 0.921),
    "F1": (0.839, 0.842, 0.850, 0.855, 0.862, 0.869, 0.878, 0.879, 0.885, 0.892, 0.902),
}

#: Relative increases in percent, as tables 3 and 4 print them.
CIRRUS_INCREASES = {
    "mAP": ("0", "22.4", "14.1", "3.2", "5.0", "3.3", "3.0", "1.0", "3.0", "1.7", "0.7"),
    "F1": ("0", "16.3", "12.3", "4.7", "4.5", "2.9", "2.8", "1.4", "2.7", "1.3", "1.3"),
}
KITTI_INCREASES = {
    "mAP": ("0", ".47", "1.17", ".81", ".92", ".91", "1.01", ".33", ".44", ".88", ".88"),
    "F1": ("0", ".36", ".95", ".59", ".82", ".81", "1.04", ".11", ".68", ".79", "1.12"),
}


def published(curves: dict[str, tuple[float, ...]]) -> Scores:
    """Return published means as scores of one repetition."""
    return Scores(tuple(curves), STEPS, (1,), np.array(list(curves.values()))[:, None])
