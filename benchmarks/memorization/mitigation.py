"""Effect and cost of mitigations on tiny diffusion models that memorized some images.

usage: python benchmarks/memorization/mitigation.py [--cache FOLDER] [--seeds 0 1 2] [--quick]

For each seed the plain model of ``training.py`` is benchmarked with the public function
``visleak.memorization.benchmark``: the 12 memorized captions, 10 images each, and general captions
that were not trained on, one image each; every method with its settings, all from the same noises.
Similarity is the correlation with the memorized image of a prompt, both minus the mean of the
training images; the CLIP score is that of a tiny CLIP trained on the general images of the world
(``alignment.py``). There is no aesthetic score, because there are no ratings of such images.

Wen's l is set to shares of the median D of the triggers, at a learning rate of 0.2 (the 0.05 of the
paper, for states of 768 numbers, changes D of a toy too little; it is measured too).

Images and results are cached in ``--cache``, so interrupted runs resume. Writes ``mitigation.json``
in the folder of this script and ``examples/mitigation_toy.md``; ``--quick`` runs all parts at a
small size and writes into the cache only.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parents[1]))

from alignment import STEPS, aligned  # noqa: E402
from experiment import Toy  # noqa: E402
from mitigation_figure import draw  # noqa: E402
from mitigation_page import write_page  # noqa: E402
from record import Bar, write  # noqa: E402

from training import trained  # noqa: E402
from visleak.encoders.features import load_alignment  # noqa: E402
from visleak.memorization import Prompts, Sampling, ScoreSettings, TriggerScore  # noqa: E402
from visleak.memorization.benchmark import (  # noqa: E402
    Benchmark,
    Judges,
    Plan,
    benchmark,
)
from visleak.memorization.benchmark.references import References  # noqa: E402
from visleak.memorization.extraction.similarity import PixelSimilarity, squeezed  # noqa: E402
from visleak.memorization.mitigate import mitigation  # noqa: E402
from visleak.memorization.settings import BenchmarkSettings  # noqa: E402

#: Wen's l as shares of the triggers' median D; the first changes nothing.
SHARES = (2.0, 0.75, 0.5, 0.35, 0.25)

INSERTED = (1, 2, 4)
RESCALED = ("1.0", "1.1", "1.2", "1.3", "3.0")

SCORES = (
    ("trigger", "top1"),
    ("trigger", "top3"),
    ("trigger", "share"),
    ("trigger", "clip"),
    ("general", "clip"),
)


@dataclass(frozen=True)
class Size:
    """Size of the experiment.

    Attributes:
        steps: of training.
        triggers: memorised captions.
        images: of each.
        general: captions, one image each.
        alignment: updates of the tiny CLIP.
    """

    steps: int = 2000
    triggers: int = 12
    images: int = 10
    general: int = 60
    alignment: int = STEPS


QUICK = Size(600, 4, 3, 6, 60)

#: The guidance of MemBench, and steps for a toy.
SAMPLING = Sampling(steps=15, guidance=7.5, batch=60)


class LessMean(PixelSimilarity):
    """The correlation of pixels, each image less the mean of the training images."""

    number = "correlation of pixels at 32 x 32, less a mean image"

    def __init__(self, mean: Any) -> None:
        self._mean = mean
        self.digest = blake2b(b"pixels 1 32 " + mean.tobytes(), digest_size=16).hexdigest()

    def vectors(self, images: Sequence[Any]) -> Any:
        """Return the pixels less the mean image, at unit length (n, 3072)."""
        rows = np.stack([(squeezed(each) - self._mean).ravel() for each in images])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def asked(level: float) -> dict[str, str]:
    """Return the methods by name.

    Args:
        level: the triggers' median D.
    """
    numbers = {f"RNA n={n}": f"rna:{n}" for n in INSERTED}
    words = {f"RTA n={n}": f"rta:{n}" for n in INSERTED}
    wen = {f"Wen l={share:g} D": f"wen:{share * level:.4f},lr=0.2" for share in SHARES}
    slow = {"Wen l=0.25 D, lr=0.05": f"wen:{0.25 * level:.4f}"}
    ren = {f"Ren C={value}": f"ren:{value}" for value in RESCALED}
    kept = {f"Ren C={value}, EOS kept": f"ren:{value},summary=padding" for value in ("1.0", "3.0")}
    return {"none": "none", **numbers, **words, **wen, **slow, **ren, **kept}


def planned(toy: Toy, size: Size, clip: Path, seed: int) -> tuple[Plan, dict[str, str], float]:
    """Return the plan of a benchmark, its methods by name, and the triggers' median D."""
    own = toy.world["memorised"][: size.triggers]
    texts = tuple(one["caption"] for one in own)
    triggers = Prompts(texts, sources=tuple((one["picture"],) for one in own))
    files = tuple((toy.folder / one["picture"],) for one in own)
    settings = ScoreSettings(timestep="first", steps=SAMPLING.steps, noises=4, seed=seed)
    level = float(np.median(TriggerScore(toy.model, settings)(list(texts)).d_l2))
    methods = asked(level)
    plan = Plan(
        model=toy.model,
        triggers=triggers,
        references=References(files),
        mitigations=tuple(mitigation(text) for text in methods.values()),
        judges=Judges(
            similarity=LessMean(squeezed(np.rint(toy.mean).astype(np.uint8))),
            alignment=load_alignment(str(clip), device="cpu"),
        ),
        general=Prompts(tuple(toy.world["held_out"][: size.general])),
        settings=BenchmarkSettings(images=size.images, sampling=SAMPLING, seed=seed),
    )
    return plan, methods, level


def measured(seed: int, size: Size, cache: Path) -> tuple[dict[str, Any], Path]:
    """Return the results of one seed and the folder of its benchmark."""
    folder = trained("plain", seed, size.steps, cache)
    clip = aligned("plain", cache, size.alignment)
    toy = Toy.of(folder)
    start = time.perf_counter()
    plan, methods, level = planned(toy, size, clip, seed)
    out = cache / "measured" / folder.name / "mitigation"
    found = benchmark(plan, out, force=True, note=lambda line: print(line, flush=True))
    said = json.loads((clip / "training.json").read_text())
    return {
        "level": level,
        "wall_seconds": round(time.perf_counter() - start, 1),
        "alignment": {key: said[key] for key in ("own_caption", "another_caption")},
        "untouched": untouched(toy, plan, methods),
        "methods": figures_of(found, methods),
        "curves": [
            {
                "method": each.line.method,
                "variant": each.line.variant,
                "against": each.name,
                "volume": each.volume.value,
            }
            for each in found.curves
        ],
    }, out


def figures_of(found: Benchmark, methods: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Return the results of all methods with their differences from no method and p-values."""
    made: dict[str, dict[str, float]] = {}
    for name, row in zip(methods, found.rows, strict=True):
        numbers: dict[str, float] = {"seconds": row.seconds["trigger"]}
        for scenario, key in SCORES:
            score = row.score(scenario, key)
            if score is None:
                continue
            label = f"{scenario}_{key}"
            numbers[label] = score.interval.value
            if score.change is not None:
                numbers |= {f"{label}_change": score.change.value, f"{label}_p": score.change.p}
        made[name] = numbers
    return made


def untouched(toy: Toy, plan: Plan, methods: Mapping[str, str]) -> bool:
    """Return whether images are bitwise equal if Wen's l is above every D."""
    prompts = list(plan.triggers.texts)
    seeds = [1] * len(prompts)
    from visleak.memorization.extraction.images import Job

    jobs = [Job(prompt, 1) for prompt in prompts]
    text = methods[f"Wen l={SHARES[0]:g} D"]
    maker = mitigation(text).prepared(toy.model, seeds[:1])
    plain = toy.model.sample(toy.model.encode_prompt(prompts), seeds, SAMPLING)
    return bool(np.array_equal(maker(toy.model, jobs, SAMPLING), plain))


def medians(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the medians over seeds of all results."""
    return {
        name: {
            key: float(np.median([row["methods"][name].get(key, math.nan) for row in rows]))
            for key in rows[0]["methods"][name]
        }
        for name in rows[0]["methods"]
    }


def bars(rows: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """Return the medians over seeds with limits."""
    told = medians(rows)
    share = {name: numbers["trigger_share"] for name, numbers in told.items()}
    falling = [share[f"Wen l={each:g} D"] for each in SHARES]
    lost = 1 - told["RNA n=4"]["general_clip"] / told["none"]["general_clip"]
    return [
        Bar("replicated share without mitigation", share["none"], 0.85, most=False),
        Bar("replicated share, RNA n=4", share["RNA n=4"], 0.15),
        Bar("replicated share, RTA n=4", share["RTA n=4"], 0.40),
        Bar("replicated share, Wen (lr 0.2, l = 0.25 of D)", share["Wen l=0.25 D"], 0.25),
        Bar("most that the share rises as Wen's l falls", float(max(np.diff(falling))), 0.0),
        Bar("share of general alignment that RNA n=4 costs", lost, 0.15, most=False),
        Bar(
            "seeds on which Wen with l above D changes no bit",
            float(sum(row["untouched"] for row in rows)),
            len(rows),
            most=False,
        ),
    ]


def main(argv: Sequence[str]) -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=Path("memorization-work"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--quick", action="store_true")
    wish = parser.parse_args(argv)
    size = QUICK if wish.quick else Size()
    found = [measured(seed, size, wish.cache) for seed in wish.seeds]
    rows = [row for row, _ in found]
    figures = {"seeds": wish.seeds, "size": asdict(size), "medians": medians(rows), "rows": rows}
    target = wish.cache / "mitigation.py" if wish.quick else Path(__file__)
    write(str(target), bars(rows), figures)
    examples = wish.cache / "examples" if wish.quick else ROOT / "examples"
    print(write_page(target.with_suffix(".json"), examples))
    draw(figures["medians"], examples / "mitigation_toy.png")


if __name__ == "__main__":
    main(sys.argv[1:])
