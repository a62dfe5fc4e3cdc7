"""Error rates of the verdicts of D-LeDe, and of the advised number of further repetitions.

usage: python benchmarks/dlede/null.py

Needs no data; fixed seeds; takes minutes, half of it for training runs in other processes.

1. The null: 20 runs of the public function with the ``lookup`` trainer on clean splits of rendered
   recordings, and a few on random splits of the same; then many more of a model of that trainer,
   over repetitions.
2. Rates of wrong verdicts by ``certainty`` in the worst case: increases at the threshold. Scores
   are normal, with the spread of training runs. The bootstrap of the package is compared with
   others.
3. Coverage of the intervals.
4. Verdicts after the advised number of further repetitions.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.ndimage import gaussian_filter
from scipy.special import ndtri

sys.path.insert(0, str(Path(__file__).parents[1]))

from record import Bar, write

from visleak import dlede
from visleak.dlede.draw import Split
from visleak.dlede.judge import (
    RULES,
    chance_above,
    chances,
    drawn_increases,
    draws,
    excess,
    statistic_interval,
)
from visleak.dlede.judge.judge import judge
from visleak.dlede.judge.scores import Scores
from visleak.dlede.settings import ControlSettings, DecisionSettings, Plan
from visleak.dlede.trainers import label_metrics, load_trainer
from visleak.formats import open_images

Float64 = npt.NDArray[np.float64]

STEPS = (0, 10, 20)
THRESHOLD = 0.05

#: Runs of the null, and how many of them may call a clean split leaking.
RUNS, MOST_WRONG = 20, 2

#: Runs of random splits, none of which may be called clean. Lookup scores nearly 1 on them, so that
#: they are undecided without calibration.
CONTRASTS = 5

#: Repetitions of those runs.
CHAINS = 5

#: Images of a run: recordings per side, frames of each, side in pixels, classes.
TRAINED, TESTED, FRAMES, SIDE, CLASSES = 54, 27, 3, 32, 3

#: Difference of the three classes in colour, of 1, for an accuracy of about a half on new images.
TINT = 0.1

#: Runs of a simulated case.
MANY = 600

#: Runs of the model of the trainer, and of further repetitions.
MODELLED, PROMISED = 60, 60


#: Score of guessing with the four classes of the model.
GUESSED = {"accuracy": 0.25, "f1": 0.25}


# 1. the null


def rendered(folder: Path, seed: int) -> tuple[list[str], list[str]]:
    """Render recordings, and return the paths of each side of a split by whole recordings.

    A recording is a window that moves over one blurred texture; its class is only a weak tint, so
    that the most similar image of another recording is a weak guess.
    """
    rng = np.random.default_rng(seed)
    sides: tuple[list[str], list[str]] = ([], [])
    for recording in range(TRAINED + TESTED):
        kind = recording % CLASSES
        texture = gaussian_filter(rng.normal(size=(SIDE + FRAMES, SIDE + FRAMES, 3)), (2, 2, 0))
        texture = 0.4 + 0.1 * texture / texture.std() + rng.normal(0, 0.05, 3)
        texture[:, :, kind] += TINT
        for frame in range(FRAMES):
            window = texture[frame : frame + SIDE, frame : frame + SIDE]
            window = window + rng.normal(0, 0.02, window.shape)
            path = folder / f"{kind}-{recording:03d}-{frame}.png"
            Image.fromarray((window.clip(0, 1) * 255).astype(np.uint8)).save(path)
            sides[recording >= TRAINED].append(str(path))
    return sides


def manifest(path: Path, files: list[str]) -> str:
    """Write a list of images with their labels."""
    rows = [f"{file},{Path(file).name.split('-')[0]}\n" for file in files]
    path.write_text("path,label\n" + "".join(rows))
    return str(path)


def real_runs() -> dict[str, Any]:
    """Return the verdicts of the public function on clean and random splits, by lookup."""
    trainer = load_trainer("lookup")
    started = time.perf_counter()
    said: dict[str, list[str]] = {"by recording": [], "at random": []}
    first: dict[str, list[float]] = {}
    for number in range(RUNS):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            train, test = rendered(folder, number)
            mixed = list(np.random.default_rng(number).permutation(train + test))
            sides = {"by recording": (train, test)}
            if number < CONTRASTS:
                sides["at random"] = (sorted(mixed[: len(train)]), sorted(mixed[len(train) :]))
            for name, parts in sides.items():
                sets = [
                    open_images(manifest(folder / f"{name}-{side}.csv", files), name=side)
                    for side, files in zip(("train", "test"), parts, strict=True)
                ]
                found = dlede.run(
                    Split(*sets), trainer, folder / name,
                    plan=Plan(STEPS, CHAINS, seed=number), decision=DecisionSettings(),
                    controls=ControlSettings(hashes=False),
                )  # fmt: skip
                said[name].append(found.judgement.verdict)
                means = [step.mean.value for step in found.judgement.metrics[0].steps]
                first.setdefault(name, means)
    return {
        "repetitions": CHAINS,
        "seconds": round(time.perf_counter() - started, 1),
        "verdicts": {name: counted(verdicts) for name, verdicts in said.items()},
        "accuracy of the first run": {
            k: [round(v, 3) for v in means] for k, means in first.items()
        },
    }


def counted(verdicts: list[str]) -> dict[str, int]:
    """Count verdicts."""
    return {name: verdicts.count(name) for name in ("leaking", "clean", "undecided")}


def looked_up(rng: np.random.Generator, base: float, twins: float, repetitions: int) -> Scores:
    """Return scores of a model that memorized its training images and their twins.

    300 test images of four classes. The answer is right for an image that leaked or has a twin in
    training, and otherwise with the probability ``base``, which depends equally on the image, the
    seed of the model and the other training images.

    Args:
        rng: draws.
        base: probability of a right answer for other images.
        twins: share of the test images that have a near-duplicate in training.
        repetitions: chains.
    """
    truth = np.arange(300) % 4
    known = rng.random(300) < twins
    ease = rng.normal(size=300)
    values = np.empty((2, repetitions, len(STEPS)))
    for chain in range(repetitions):
        order, seed = rng.permutation(300), rng.normal(size=300)
        for at, step in enumerate(STEPS):
            mind = (ease + seed + rng.normal(size=300)) / math.sqrt(3.0)
            right = known | (mind < ndtri(base))
            right[order[: 300 * step // 100]] = True
            answer = np.where(right, truth, (truth + rng.integers(1, 4, 300)) % 4)
            values[:, chain, at] = (
                right.mean(),
                label_metrics(truth, answer, predicted_classes=True)["f1"],
            )
    return Scores(("accuracy", "f1"), STEPS, tuple(range(1, repetitions + 1)), values)


def modelled_runs() -> list[dict[str, Any]]:
    """Return verdicts of that model over splits, repetitions and rules."""
    rows = []
    splits = {"clean": (0.45, 0.0), "half of it leaks": (0.45, 0.5), "leaking": (0.45, 0.9)}
    splits["clean, but good at new images"] = (0.8, 0.0)
    for (name, (base, twins)), chains in product(splits.items(), (2, 3, 5, 10)):
        rng = np.random.default_rng([chains, int(100 * base), int(100 * twins)])
        runs = [looked_up(rng, base, twins, chains) for _ in range(MODELLED)]
        for rule in RULES:
            decision = DecisionSettings(rule=rule, chance=GUESSED)
            said = [judge(run, decision, resamples=2000) for run in runs]
            rows.append(
                {
                    "split": name, "base": base, "twins": twins, "repetitions": chains,
                    "rule": rule, **counted([each.verdict for each in said]),
                    "leaking on the means": sum(each.on_means == "leaking" for each in said),
                }
            )  # fmt: skip
    return rows


# 2. wrong verdicts


def plain(chains: int) -> Float64:
    """Return the weights of the plain bootstrap."""
    rng = np.random.default_rng([0, chains])
    return (rng.multinomial(chains, np.full(chains, 1 / chains), size=10_000) - 1.0) / chains


def inflated(chains: int) -> Float64:
    """Return the weights of a bootstrap with the spread of n - 1."""
    return plain(chains) * math.sqrt(chains / (chains - 1))


def chosen(chains: int) -> Float64:
    """Return the weights of the package."""
    return draws(chains, 10_000)


def normal(chains: int) -> Float64:
    """Return normal weights, scaled as those of the package: exactly a t distribution."""
    rng = np.random.default_rng([1, chains])
    drawn = rng.normal(size=(10_000, chains))
    drawn -= drawn.mean(axis=1, keepdims=True)
    return drawn / np.sqrt(chains * rng.chisquare(chains - 1, size=(10_000, 1)))


WEIGHTS: dict[str, Callable[[int], Float64]] = {
    "plain": plain,
    "inflated": inflated,
    "chosen": chosen,
    "normal weights": normal,
}


def studentised(before: Float64, after: Float64, counts: Float64) -> float:
    """Return the probability that an increase exceeds the threshold by a studentised bootstrap."""
    values = excess(before, after, THRESHOLD)
    n = len(values)
    share = counts / n
    means = share @ values
    errors = np.sqrt(np.maximum(share @ values**2 - means**2, 0.0) / (n - 1))
    known = errors > 1e-9 * np.abs(values).max()
    pivots = (means[known] - values.mean()) / errors[known]
    return float((values.mean() - pivots * values.std(ddof=1) / math.sqrt(n) > 0).mean())


#: Increases of the two steps with the highest error rate, by rule and wrong verdict.
HARDEST = {
    ("both-steps", "leaking"): (THRESHOLD, 0.0),
    ("both-steps", "clean"): (THRESHOLD, THRESHOLD),
    ("any-step", "leaking"): (THRESHOLD, THRESHOLD),
    ("any-step", "clean"): (THRESHOLD, 0.12),
    ("cumulative", "leaking"): (0.025, 1.05 / 1.025 - 1.0),
    ("cumulative", "clean"): (0.025, 1.05 / 1.025 - 1.0),
}

#: Spread of the scores of training runs, and correlation of the steps of a chain.
NOISES = {"sd .02": (0.02, 0.0), "sd .02, paired": (0.02, 0.7)}


def training_runs(
    rng: np.random.Generator, rises: tuple[float, float], chains: int, noise: str
) -> Float64:
    """Return normal scores around a curve that begins with an mAP of .5, (runs, chains, steps)."""
    spread, shared = NOISES[noise]
    means = 0.5 * np.cumprod([1.0, 1.0 + rises[0], 1.0 + rises[1]])
    own = rng.normal(size=(MANY, chains, 3)) * math.sqrt(1.0 - shared)
    return means + spread * (own + rng.normal(size=(MANY, chains, 1)) * math.sqrt(shared))


def wrong_verdicts() -> list[dict[str, Any]]:
    """Return the rates of wrong verdicts by bootstrap, rule, repetitions, noise, certainty."""
    rows = []
    for chains, noise in product((2, 3, 5, 10), NOISES):
        weights = {name: make(chains) for name, make in WEIGHTS.items()}
        counts = plain(chains) * chains + 1.0
        for (rule, wrong), rises in HARDEST.items():
            rng = np.random.default_rng([chains, list(NOISES).index(noise)])
            runs = training_runs(rng, rises, chains, noise)
            above = {name: np.array(list(exceeding(runs, rule, w))) for name, w in weights.items()}
            pairs = RULES[rule].pairs(3)
            above["studentised"] = np.array(
                [[studentised(run[:, p], run[:, c], counts) for p, c in pairs] for run in runs]
            )
            for name, chance in above.items():
                said = np.array([chances(list(each), RULES[rule]) for each in chance])
                column = said[:, 0 if wrong == "leaking" else 1]
                rows.append(
                    {
                        "bootstrap": name, "rule": rule, "wrong": wrong, "repetitions": chains,
                        "noise": noise,
                        "share wrong": {
                            f"{certainty}": round(float((column >= certainty).mean()), 4)
                            for certainty in (0.8, 0.9, 0.95, 0.99)
                        },
                    }
                )  # fmt: skip
    return rows


def exceeding(runs: Float64, rule: str, weights: Float64) -> Iterator[list[float]]:
    """Yield the probabilities of each run that the increases of a rule exceed the threshold."""
    pairs = RULES[rule].pairs(3)
    for run in runs:
        yield [chance_above(run[:, p], run[:, c], THRESHOLD, False, weights) for p, c in pairs]


def counted_draws() -> list[dict[str, Any]]:
    """Return the error rate of the plain rule: the share of draws whose statistic is above.

    It uses the larger of two increases as if it had been fixed beforehand.
    """
    rows = []
    for chains in (2, 3, 5, 10):
        weights = draws(chains, 10_000)
        runs = training_runs(np.random.default_rng(chains), (0.05, 0.05), chains, "sd .02")[:500]
        wrong = 0
        for run in runs:
            values = np.stack([excess(run[:, at], run[:, at + 1], THRESHOLD) for at in (0, 1)], 1)
            drawn = values.mean(axis=0) + weights @ (values - values.mean(axis=0))
            wrong += bool((drawn.max(axis=1) > 0).mean() >= 0.95)
        rows.append({"repetitions": chains, "share wrong at 0.95": wrong / len(runs)})
    return rows


# 3. intervals


def coverage() -> list[dict[str, Any]]:
    """Return the coverage of 95 % intervals of an increase and of a statistic."""
    rows = []
    for chains, name in product((2, 3, 5, 10), ("plain", "chosen")):
        weights = WEIGHTS[name](chains)
        for rises in ((0.08, 0.08), (0.08, 0.02)):
            runs = training_runs(np.random.default_rng(chains), rises, chains, "sd .02")[:400]
            held = dict.fromkeys(("increase", "statistic of both-steps", "of any-step"), 0)
            truths = (rises[0], max(rises), min(rises))
            for run in runs:
                drawn = np.stack(
                    [drawn_increases(run[:, at], run[:, at + 1], False, weights) for at in (0, 1)],
                    axis=1,
                )
                means = run.mean(axis=0)
                found = means[1:] / means[:-1] - 1.0
                intervals = (
                    statistic_interval(found[:1], drawn[:, :1], RULES["cumulative"]),
                    statistic_interval(found, drawn, RULES["both-steps"]),
                    statistic_interval(found, drawn, RULES["any-step"]),
                )
                for key, truth, each in zip(held, truths, intervals, strict=True):
                    held[key] += each.low <= truth <= each.high
            shares = {key: count / len(runs) for key, count in held.items()}
            rows.append({"bootstrap": name, "repetitions": chains, "rises": list(rises), **shares})
    return rows


# 4. more repetitions


def told_more() -> list[dict[str, Any]]:
    """Return whether the advised repetitions decide, and correctly."""
    rows = []
    for first, rise in product((2, 3, 5), (0.0, 0.02, 0.04, 0.06, 0.08, 0.12)):
        rng = np.random.default_rng([first, int(1000 * rise)])
        means = 0.5 * np.array([1.0, 1.0 + rise, (1.0 + rise) ** 2])
        truth = "leaking" if rise <= THRESHOLD else "clean"
        tally = {"decided at once": 0, "told": 0, "decided then": 0, "wrong": 0, "hopeless": 0}
        needed = []
        for _ in range(PROMISED):
            values = means + rng.normal(0, 0.015, (2, first + 200, 3))
            found = judge(of_chains(values[:, :first]), DecisionSettings(), resamples=2000)
            if found.verdict == "undecided" and found.more is not None:
                tally["told"] += 1
                needed.append(found.more)
                more = of_chains(values[:, : first + found.more])
                found = judge(more, DecisionSettings(), resamples=2000)
                tally["decided then"] += found.verdict != "undecided" or found.disagree
            elif found.verdict == "undecided":
                tally["hopeless"] += 1
            else:
                tally["decided at once"] += 1
            tally["wrong"] += found.verdict not in (truth, "undecided")
        median = float(np.median(needed)) if needed else None
        rows.append({"repetitions": first, "rise": rise, **tally, "median told": median})
    return rows


def of_chains(values: Float64) -> Scores:
    """Return (metrics, chains, steps) as scores."""
    return Scores(("map50", "f1"), STEPS, tuple(range(1, values.shape[1] + 1)), values)


def main() -> None:
    """Measure all of it."""
    started = time.perf_counter()
    real = real_runs()
    modelled = modelled_runs()
    wrong = wrong_verdicts()
    more = told_more()
    ours = [row["share wrong"]["0.95"] for row in wrong if row["bootstrap"] == "chosen"]
    clean = [row for row in modelled if row["split"] == "clean"]
    told = sum(row["told"] for row in more)
    bars = [
        Bar(
            f"clean splits called leaking, of {RUNS} real runs with lookup",
            real["verdicts"]["by recording"]["leaking"],
            MOST_WRONG,
        ),
        Bar(
            f"random splits called clean, of {CONTRASTS} real runs with lookup",
            real["verdicts"]["at random"]["clean"],
            0,
        ),
        Bar(
            f"clean splits that start at .8 called leaking, most of {MODELLED} modelled runs",
            max(row["leaking"] for row in modelled if row["base"] == 0.8),
            MODELLED * MOST_WRONG / RUNS,
        ),
        Bar(
            f"clean splits that start at .45 called leaking, most of {MODELLED} modelled runs",
            max(row["leaking"] for row in clean),
            MODELLED * MOST_WRONG / RUNS,
        ),
        Bar("wrong verdicts at certainty .95, mean of hardest cases", float(np.mean(ours)), 0.05),
        # 5 % plus four standard errors of 600 runs, for the largest of 48 cases
        Bar("wrong verdicts at certainty .95, worst of hardest cases", max(ours), 0.086),
        Bar(
            "undecided, and decided by the repetitions told, share",
            sum(row["decided then"] for row in more) / told,
            0.65,
            most=False,
        ),
    ]
    figures = {
        "the null, real runs": real,
        f"the null, modelled runs (of {MODELLED})": modelled,
        "wrong verdicts": wrong,
        "wrong 'clean' by counting draws": counted_draws(),
        "coverage of 95 % intervals": coverage(),
        "more repetitions": more,
        "seconds": round(time.perf_counter() - started, 1),
    }
    write(__file__, bars, figures)


if __name__ == "__main__":
    main()
