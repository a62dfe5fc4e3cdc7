"""Results of D-LeDe made by hand: the paper's curves, and repeated runs."""

import math
from dataclasses import replace

import numpy as np

from visleak.dlede.judge import judge as judging
from visleak.dlede.judge.scores import Scores
from visleak.dlede.results import (
    AuditSummary,
    Calibration,
    ClassCounts,
    Convergence,
    DLeDeResult,
    Failure,
    Gain,
    HashEvidence,
    HashPair,
    LongerScore,
    SplitSet,
)
from visleak.dlede.settings import FULL, DecisionSettings, Plan
from visleak.stats.bootstrap import Estimate

#: Babu et al. 2025, tables 1 (mAP at 20 % as table 3 has it) and 4.
CIRRUS = {
    "precision": (.553, .622, .690, .761, .764, .831, .786, .787, .820, .843, .831),
    "recall": (.469, .563, .628, .641, .669, .680, .722, .739, .757, .769, .800),
    "map50": (.486, .595, .679, .701, .736, .760, .783, .791, .815, .829, .835),
    "f1": (.49, .57, .64, .67, .70, .72, .74, .75, .77, .78, .79),
}  # fmt: skip
KITTI = {
    "map50": (.852, .856, .866, .873, .881, .889, .898, .901, .905, .913, .921),
    "f1": (.839, .842, .850, .855, .862, .869, .878, .879, .885, .892, .902),
}  # fmt: skip

#: Table 5; the odd distances and those above 10 are made up.
KITTI_PAIRS = (851, 0, 3662, 0, 5141, 0, 6047, 0, 5417, 0, 6251, 0, 7903, 0, 9544, 0, 12120)


def judge(scores, *, calibrated=False, decided_by=None, resamples=1000, **decision):
    """Judge scores by settings."""
    return judging.judge(
        scores,
        DecisionSettings(**decision),
        decided_by=decided_by,
        calibrated=calibrated,
        resamples=resamples,
    )


def curves(means, repetitions=1, spread=0.0, seed=1):
    """Return scores whose means are as given; repetitions differ alike at all steps, and a bit."""
    rng = np.random.default_rng(seed)
    wanted = np.array(list(means.values()))[:, None, :]
    shape = (len(means), repetitions, wanted.shape[2])
    noise = rng.normal(0, spread, (1, repetitions, 1)) + rng.normal(0, spread / 2, shape)
    noise -= noise.mean(axis=1, keepdims=True)
    return Scores(
        tuple(means), FULL[: wanted.shape[2]], tuple(range(1, repetitions + 1)),
        np.clip(wanted + noise, 0.001, 0.999),
    )  # fmt: skip


def result(scores, metrics=("map50", "f1"), threshold=0.05):
    rules = ("both-steps", "any-step", "cumulative")
    decision = {"metrics": metrics, "threshold": threshold}
    first, *others = (judge(scores, rule=rule, **decision) for rule in rules)
    return DLeDeResult(
        train=SplitSet("train", 5231, "kitti:training"),
        test=SplitSet("test", 2250, "kitti:training"),
        trainer={"name": "torch:detector", "epochs": 30},
        plan=Plan(scores.steps, len(scores.repetitions)),
        scores=scores,
        judgement=first,
        others=tuple(others),
        seconds=7200.0,
    )


def cirrus(repetitions=10):
    return result(curves(CIRRUS, repetitions, 0.012 if repetitions > 1 else 0.0))


def kitti(repetitions=10):
    spread = 0.004 if repetitions > 1 else 0.0
    return replace(result(curves(KITTI, repetitions, spread)), hashes=pairs())


def pairs():
    nearest = [312, 0, 401, 0, 377, 0, 290, 0, 214, 0, 150, 0, 121, 0, 95, 0, 80, *[0] * 48]
    alike = tuple(HashPair(f"{n:06d}.png", f"{n + 900:06d}.png", 0) for n in range(100))
    return HashEvidence(5231, 2250, 3, (*KITTI_PAIRS, *[400] * 48), tuple(nearest), alike)


def early(repetitions=5, spread=0.01):
    """The first three steps alone, of a made-up split."""
    means = {"map50": (0.60, 0.63, 0.65), "f1": (0.58, 0.60, 0.62)}
    return result(curves(means, repetitions, spread))


def whole():
    made = kitti()
    clean = result(curves({m: CIRRUS[m][:3] for m in ("map50", "f1")}, 5, 0.01)).judgement
    classes = ("car", "van", "pedestrian")
    sizes = {"test_images": 700, "test_groups": 4, "training_images": 3000, "training_groups": 17}
    return replace(
        made,
        failed=(Failure(30, 4, "exit code 1", "runs/step-030/repetition-04.log"),),
        notes=("boxes of 12 images lie outside of them",),
        class_counts=ClassCounts(
            classes, (2000, 600, 400), (9000, 900, 800), (0, 10, 20),
            ((4800.0, 1500.0, 900.0), (4790.5, 1502.0, 890.0), (4781.0, 1504.5, 880.0)),
            ((20000.0, 2000.0, 3000.0), (20100.0, 2010.0, 2900.0), (20200.0, 2020.0, 2800.0)),
        ),
        memory=(
            Gain("ap50", 10, 225.0, Estimate(0.03, 0.02, 0.04), Estimate(0.001, -0.002, 0.004)),
        ),
        calibration=Calibration(
            21, (sizes, sizes), (clean, clean), 0.05, 0.083, {"map50": 0.09, "f1": 0.083}
        ),
        convergence=Convergence(
            (30, 90),
            (
                LongerScore(0, "map50", 0.852, 0.857, 1),
                LongerScore(20, "map50", 0.866, math.nan, 0),
            ),
        ),
        audit=AuditSummary("audit", "851 of 2,250 test images have a copy in train"),
    )  # fmt: skip
