"""A run to be killed: everything takes its time. ``python FILE FOLDER SECONDS``."""

import dataclasses
import sys
import time
from pathlib import Path

from painting_model import Contrast, PaintingModel, plan_of

from visleak.memorization.benchmark import benchmark


class SlowModel(PaintingModel):
    """Waits at every batch."""

    def sample(self, conditioning, seeds, sampling):
        time.sleep(float(sys.argv[2]))
        return super().sample(conditioning, seeds, sampling)


class SlowContrast(Contrast):
    """Waits at every batch."""

    def __call__(self, pictures):
        time.sleep(float(sys.argv[2]))
        return super().__call__(pictures)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    plan = plan_of(folder.parent / "refs", "rna:1", "rna:2", model=SlowModel())
    judges = dataclasses.replace(plan.judges, aesthetic=SlowContrast())
    result = benchmark(dataclasses.replace(plan, judges=judges), folder)
    print(len(result.rows))
