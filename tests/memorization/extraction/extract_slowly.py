"""A run to be killed: a model that takes its time. ``python FILE FOLDER SECONDS``."""

import sys
import time
from pathlib import Path

from replaying_model import ReplayingModel

from visleak.memorization.extraction import ExtractSettings, extract
from visleak.memorization.model import Sampling

PROMPTS = ["always", "never", "half"]


class SlowModel(ReplayingModel):
    """Waits at every batch."""

    def sample(self, conditioning, seeds, sampling):
        time.sleep(float(sys.argv[2]))
        return super().sample(conditioning, seeds, sampling)


if __name__ == "__main__":
    result = extract(
        SlowModel({"always": (0, 1.0), "half": (1, 0.6)}),
        PROMPTS,
        ExtractSettings(images=30, min_cluster=10),
        Path(sys.argv[1]),
        similarity="pixels",
        sampling=Sampling(steps=2, guidance=7.5, batch=8),
    )
    print(len(result.clusters))
