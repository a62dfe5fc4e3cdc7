"""D-LeDe with a trained detector, on two splits of one rendered data set.

usage: python benchmarks/dlede/experiment.py [--work FOLDER] [--jobs 2] [--early] [--quick]

600 frames of twelve drives (``road.py``) are split twice into parts of equal size: by whole
recordings, which cannot leak, and at random, which puts neighbouring frames on both sides. On each
split ``torch:detector`` is trained from scratch

- at 0, 10 and 20 % of leaked test images, five times each: the verdict of the paper's early stop;
- at 0 to 100 %, with the first two of these chains: the curve;
- on three other splits by whole recordings, three times each: the calibrated threshold.

In addition: the audit of each split and the perceptual hashes of all its train-test pairs.

Training runs are cached in ``--work``, so interrupted runs resume. ``--early`` ends after the first
verdicts. Writes ``experiment.json`` in the folder of this script, and the page and figures of
``examples/dlede_road`` from it; ``--quick`` runs all parts at a small size and writes into the work
folder only. Settings were chosen by step 0 of other splits (seed 7), where no image leaks.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from road import FRAMES, SEED, SEQUENCES, SIZE, write_road

import visleak
from visleak.dlede import (
    ControlSettings,
    DecisionSettings,
    DLeDeResult,
    Execution,
    Plan,
    Split,
    Trainer,
    load_trainer,
    run,
    split_by,
)
from visleak.dlede.document import write as write_result
from visleak.dlede.document.text import headline
from visleak.dlede.hashes import pair_sheet
from visleak.dlede.settings import DECIDING, FULL, Forecast
from visleak.documents import as_plain
from visleak.records import ImageSet

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parents[1]))

#: Folder of figures and page.
EXAMPLES = ROOT / "examples"

#: Name of a split -> its recipe: a third of the images is the test set. The first split cannot
#: leak. All settings were fixed before the first training run on them.
RECIPES = {"sequences": "groups:0.3334:2025", "random": "random:0.3334:2025"}

#: Grades of counted pairs of the audit.
GRADES = ("exact", "near", "similar")

#: Stored values of the leaking recordings of an audit.
RECORDINGS = ("shared", "leaking", "close", "within")

#: Distance up to which perceptual hashes are similar (Babu et al. 2025).
CUT = 10


@dataclass(frozen=True)
class Size:
    """Size of the experiment.

    Attributes:
        sequences, frames, image: of the data set.
        trainer, epochs: of the training runs.
        early, full: repetitions of the verdict and of the curve.
        clean, calibrated: clean splits for the calibration of the threshold, and repetitions.
        steps: of the curve.
    """

    sequences: int = SEQUENCES
    frames: int = FRAMES
    picture: tuple[int, int] = SIZE
    trainer: str = "torch:detector?side=128&width=16&batch=8&rate=0.006"
    epochs: int = 20
    early: int = 5
    full: int = 2
    clean: int = 3
    calibrated: int = 3
    steps: tuple[int, ...] = FULL


#: A small size, to test the script.
QUICK = Size(6, 12, (96, 72), "torch:detector?side=96&width=16&batch=4", 8, 2, 1, (0, 10, 20, 50))


def data_set(work: Path, size: Size) -> ImageSet:
    """Return the data set, rendered once, because training runs depend on file times."""
    folder = work / "road"
    if not (folder / "data.yaml").exists():
        start = time.perf_counter()
        write_road(folder, size.sequences, size.frames, size.picture, SEED)
        (work / "rendering.json").write_text(json.dumps(time.perf_counter() - start))
    images = visleak.open_images(
        f"yolo:{folder / 'data.yaml'}#val", group="/^([^/]+)//", frame=r"/(\d+)\.png$/"
    )
    if not isinstance(images, ImageSet):
        raise SystemExit("the data set holds no pictures")
    return images


def recordings_of(images: ImageSet) -> list[str]:
    """Return the recordings of images."""
    return sorted(set(images.groups.to_pylist())) if images.groups is not None else []


def about_data(work: Path, images: ImageSet) -> dict[str, Any]:
    """Return a description of the data set."""
    from visleak.formats import boxes_of

    boxes = boxes_of(images)
    if boxes is None:
        raise SystemExit("the data set has no boxes")
    objects = boxes.counts().sum(axis=0)
    return {
        "images": len(images),
        "recordings": len(recordings_of(images)),
        "objects": {name: int(n) for name, n in zip(boxes.names, objects, strict=True)},
        "seconds_of_rendering": round(json.loads((work / "rendering.json").read_text()), 1),
    }


def trained(
    split: Split, trainer: Trainer, folder: Path, plan: Plan, jobs: int, hashes: bool
) -> DLeDeResult:
    """Return the result of D-LeDe; training runs in the folder are reused."""

    left = 0

    def print_forecast(found: Forecast) -> None:
        nonlocal left
        left, seconds = found.training_runs - found.done, found.seconds or 0.0
        print(
            f"{folder.name}: {found.training_runs} training_runs, {found.done} done;"
            f" about {seconds / 60:.0f} minutes",
            flush=True,
        )

    start = time.perf_counter()
    result = run(
        split,
        trainer,
        folder,
        plan=plan,
        controls=ControlSettings(hashes=hashes),
        execution=Execution(jobs=jobs, notify=print, on_forecast=print_forecast),
    )
    if left:  # also for interrupted runs, whose finished part has no time
        stage = f"{folder.name}, {len(plan.steps)} steps, {plan.repetitions} repetitions"
        spent(folder.parent, stage, left, start)
    return result


def audited(split: Split, folder: Path) -> dict[str, Any]:
    """Return the numbers of pairs and test images that an audit of the split finds."""
    done = (folder / "audit.json").exists()
    if not done:
        visleak.audit(split.test, split.train, out=folder, cache=None)
    made = visleak.Audit(folder)
    pairs = made.pairs()
    leaks = pairs.filter(pc.not_equal(pairs["coverage"], "within"))
    graded = Counter(leaks["grade"].to_pylist())
    comparison = made.summary.as_dict()["comparisons"][0]
    recordings = comparison.get("recordings") or {}
    return {
        "headline": made.headline,
        "pairs": {grade: graded[grade] for grade in GRADES},
        "near_or_exact_test_images": round(made.rate("near_or_exact").count),
        "recordings": {
            key: recordings.get(key) for key in ("shared", "leaking", "close", "within")
        },
    }


def stored(result: DLeDeResult) -> dict[str, Any]:
    """Return the stored part of a result: verdict, means, increases, scores of training runs."""
    values = result.scores.values
    return {
        "headline": headline(result),
        "training_runs": int(np.isfinite(values[0]).sum()),
        "failed": len(result.failed),
        "minutes_of_training": round(result.seconds / 60, 1),
        "judgement": as_plain(result.judgement),
        "on_means_by_rule": {each.rule: each.on_means for each in result.others},
        "steps": list(result.scores.steps),
        "scores": {
            name: as_plain(np.round(result.scores.of(name), 4).tolist())
            for name in result.scores.metrics
        },
        "memory": as_plain(list(result.memory)),
    }


def hashes_of(result: DLeDeResult) -> dict[str, Any]:
    """Return the histogram of hash distances of all train-test pairs, and of nearest ones."""
    found = result.hashes
    if found is None:
        raise SystemExit("hashes were not compared")
    return {
        "pairs": found.train * found.test,
        "distances": list(found.histogram[:33]),
        "nearest": list(found.nearest[:33]),
        "alike_pairs": sum(found.histogram[: CUT + 1]),
        "test_images_with_alike": sum(found.nearest[: CUT + 1]),
    }


def calibrated(
    splits: Mapping[str, Split], trainer: Trainer, work: Path, size: Size, jobs: int
) -> dict[str, Any]:
    """Return the threshold of clean splits of the same images, and both splits' verdicts by it.

    The first chains of the random split are reused; the clean splits are trained with the same
    number.
    """
    plan = Plan(DECIDING, size.calibrated, epochs=size.epochs)
    extras = ControlSettings(calibrate=size.clean, hashes=False)
    start = time.perf_counter()
    works = Execution(jobs=jobs, notify=print)
    random = run(
        splits["random"], trainer, work / "random", plan=plan, controls=extras, execution=works
    )
    spent(work, "clean splits", size.clean * len(DECIDING) * size.calibrated, start)
    clean = run(splits["sequences"], trainer, work / "sequences", plan=plan, execution=works)
    found = random.calibration
    if found is None:
        raise SystemExit("no clean split came to a result")
    verdicts: dict[str, Any] = {
        "repetitions": size.calibrated,
        "alpha": found.alpha,
        "threshold": as_plain(found.threshold),
        "clean": [
            {each.metric: as_plain(each.statistic.value) for each in judged.metrics}
            for judged in found.judgements
        ],
    }
    for name, result in {"sequences": clean, "random": random}.items():
        judged = result.judgement
        if found.threshold > 0:
            judged = DecisionSettings(threshold=found.threshold).of(result.scores)
        verdicts[name] = {
            "statistic": {each.metric: each.statistic.value for each in judged.metrics},
            "verdict": judged.verdict if found.threshold > 0 else "undecided",
            "leaking": judged.leaking,
            "clean": judged.clean,
        }
    return verdicts


def spent(work: Path, stage: str, training_runs: int, start: float) -> None:
    """Store the time of a stage, unless it was reused."""
    path = work / "seconds.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    seconds = round(time.perf_counter() - start, 1)
    if stage not in known:
        known[stage] = {"training_runs": training_runs, "seconds": seconds}
        path.write_text(json.dumps(known))


def experiment(work: Path, size: Size, jobs: int, early_only: bool, target: Path) -> dict[str, Any]:
    """Run all parts and return the results, which are written after each part."""
    images = data_set(work, size)
    trainer = load_trainer(size.trainer)
    splits = {name: split_by(images, recipe) for name, recipe in RECIPES.items()}
    figures: dict[str, Any] = {
        "settings": {"trainer": size.trainer, "epochs": size.epochs, "jobs": jobs}
        | {"recipes": RECIPES, "picture": list(size.picture)},
        "data": about_data(work, images),
        "splits": {},
    }
    for name, split in splits.items():
        figures["splits"][name] = {
            "training_images": len(split.train),
            "test_images": len(split.test),
            "test_recordings": recordings_of(split.test),
            "audit": audited(split, work / f"audit-{name}"),
        }
    for name, split in splits.items():
        plan = Plan(DECIDING, size.early, epochs=size.epochs)
        result = trained(split, trainer, work / name, plan, jobs, True)
        alike = None if result.hashes is None else pair_sheet(split, result.hashes)
        write_result(result, work / f"{name}-early", sheet=alike)
        figures["splits"][name] |= {"early": stored(result), "hashes": hashes_of(result)}
        print(f"{name}: {headline(result)}", flush=True)
    publish(figures, work, target)
    if early_only:
        return figures
    for name, split in splits.items():
        plan = Plan(size.steps, size.full, epochs=size.epochs)
        result = trained(split, trainer, work / name, plan, jobs, False)
        write_result(result, work / f"{name}-full")
        figures["splits"][name]["full"] = stored(result)
        print(f"{name}, whole curve: {headline(result)}", flush=True)
        publish(figures, work, target)
    figures["calibration"] = calibrated(splits, trainer, work, size, jobs)
    publish(figures, work, target)
    return figures


def publish(figures: Mapping[str, Any], work: Path, target: Path) -> None:
    """Write the JSON file, and from it page and figures."""
    from experiment_page import write_page
    from record import write

    wall = json.loads((work / "seconds.json").read_text())
    figures = {**figures, "wall": wall}

    at_work = target / "benchmarks" / "dlede"
    at_work.mkdir(parents=True, exist_ok=True)
    write(str(at_work / "experiment.py"), [], figures)
    write_page(at_work / "experiment.json", work, target / "examples")


def main() -> None:
    """Run the experiment from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--work", type=Path, default=Path("dlede-road"), help="kept between runs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--early", action="store_true", help="end after the first verdicts")
    parser.add_argument("--quick", action="store_true", help="toy size; publishes into --work")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    size, target = (QUICK, given.work) if given.quick else (Size(), ROOT)
    experiment(given.work, size, given.jobs, given.early, target)


if __name__ == "__main__":
    main()
