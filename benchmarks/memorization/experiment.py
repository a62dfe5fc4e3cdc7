"""Detection, extraction, search and augmentation on tiny diffusion models that memorized images.

usage: python benchmarks/memorization/experiment.py [--cache FOLDER] [--seeds 0 1 2] [--quick]

For each seed two models are trained from scratch (``training.py``): of the *plain* world, which has
few words, and of the *hard* one, where no single word determines a memorized image. The public
functions of visleak are applied to them:

- detection (plain): how well D separates the 12 memorized captions from 300 general captions that
  were not trained on, and from 100 that are similar to memorized ones;
- extraction and tracing (plain): 100 images of each memorized caption and of each of 100 general
  ones (20 for all seeds except 0), clusters of at least 20, and the audit of their medoids against
  the training images; then the same images clustered by their pixels;
- search (hard): results of Gibbs sampling from masks, random words, the best of the training
  captions, ConZIC, ZeroCap and PEZ with the same number of model calls;
- augmentation (hard): a bank of prompts from one trigger, and twelve diverse ones of it.

Reproductions are determined twice: by this script (correlation of the image with a memorized image,
both minus the mean of the training images, above 0.5), and by the tracing of visleak.

Results are cached in ``--cache``, so interrupted runs resume. Writes ``experiment.json`` in the
folder of this script and ``examples/memorization_toy.md``; ``--quick`` runs all parts at a small
size and writes into the cache only.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parents[1]))

from experiment_page import write_page  # noqa: E402
from record import Bar, write  # noqa: E402

from training import trained  # noqa: E402
from visleak.diffusion import load_model  # noqa: E402
from visleak.memorization import (  # noqa: E402
    Prompts,
    Sampling,
    ScoreSettings,
    TokenModel,
    TriggerScore,
)
from visleak.memorization.baselines.gradients import (  # noqa: E402  # noqa: E402
    Pez,
    PezSettings,
    Zerocap,
    ZerocapSettings,
    load_causal,
)
from visleak.memorization.extraction import (  # noqa: E402
    Extraction,
    ExtractSettings,
    extract,
    reclustered,
)
from visleak.memorization.search.driver import Search, SearchTask  # noqa: E402
from visleak.memorization.search.gibbs import AugmentSettings, GibbsSearch, GibbsSettings, augment  # noqa: E402  # noqa: E402
from visleak.memorization.search.methods import (  # noqa: E402  # noqa: E402
    Conzic,
    ConzicSettings,
    Greedy,
    RandomSettings,
    RandomWords,
)
from visleak.memorization.search.proposals import Rules, load_language_model  # noqa: E402
from visleak.memorization.search.run import diversify  # noqa: E402
from visleak.memorization.settings import Budget  # noqa: E402
from visleak.memorization.tracing import trace  # noqa: E402

Float64 = npt.NDArray[np.float64]

#: Correlation with a memorized image above which an image is a reproduction (as in MemBench).
REPLAYED = 0.5


@dataclass(frozen=True)
class Size:
    """Size of the experiment.

    Attributes:
        steps: of training.
        share: images per prompt for the replicated share, and number of general captions.
        extracted: images per prompt, and general captions, for extraction; least size of a cluster.
        chains, iterations, candidates: of the search; their product is the budget of D.
        length: words of a searched prompt.
        judged: images per found prompt, and how many of them must be reproductions.
        augmented: steps of a chain (one per word, and one more) and candidates of Algorithm 2.
        picks: of Algorithm 3.
        again: general captions for extraction for all seeds except 0, which has the second of
            ``extracted``, because images take most of the time.
    """

    steps: int = 2000
    share: tuple[int, int] = (6, 50)
    extracted: tuple[int, int, int] = (100, 100, 20)
    chains: int = 5
    iterations: int = 40
    candidates: int = 32
    length: int = 6
    judged: tuple[int, int] = (6, 3)
    augmented: tuple[int, int] = (12, 40)
    picks: int = 12
    again: int = 20


QUICK = Size(600, (3, 10), (30, 10, 6), 2, 14, 16, 6, (3, 2), (3, 8), 4, 5)

#: DDIM steps and guidance (of MemBench) of images for correlations.
SAMPLING = Sampling(steps=15, guidance=7.5, batch=50)

#: The same for extraction and tracing: a guidance of 7.5 saturates the toy's colours, so that
#: reproductions are graded similar and not near. Chosen on seed 0, from 7.5 and 3.
EXTRACTING = Sampling(steps=15, guidance=3.0, batch=50)


@dataclass(frozen=True)
class Toy:
    """A trained toy.

    Attributes:
        folder: with ``pipeline``, ``mlm``, ``clm``, ``memorised``, ``training``, ``world.json``.
        model: loaded.
        world: captions and words.
        mean: of the training images, (16, 16, 3) in 0..255.
        memorised: the repeated images, (12, 16, 16, 3).
    """

    folder: Path
    model: TokenModel
    world: dict[str, Any]
    mean: Float64
    memorised: Float64

    @classmethod
    def of(cls, folder: Path) -> Toy:
        """Load a trained toy."""
        world = json.loads((folder / "world.json").read_text())
        repeated = []
        for one in world["memorised"]:
            with Image.open(folder / one["picture"]) as picture:
                repeated.append(np.asarray(picture.convert("RGB"), np.float64))
        model = load_model(str(folder / "pipeline"), device="cpu")
        return cls(folder, model, world, np.asarray(world["mean"], np.float64), np.stack(repeated))

    def correlations(self, images: npt.NDArray[np.uint8]) -> Float64:
        """Return the correlations of images with memorized images, (n, 12), -1 to 1."""
        left = unit(np.asarray(images, np.float64) - self.mean)
        return np.asarray(left @ unit(self.memorised - self.mean).T)

    def replays(self, prompts: Sequence[str], count: int, first: int = 0) -> Float64:
        """Return correlations of images of prompts, (prompts, count, 12), from the same seeds."""
        seeds = [first + number for number in range(count)]
        encoded = self.model.encode_prompt(list(prompts)).repeated(count)
        images = self.model.sample(encoded, seeds * len(prompts), SAMPLING)
        return self.correlations(images).reshape(len(prompts), count, -1)


def unit(rows: Float64) -> Float64:
    """Return rows of unit length."""
    flat = rows.reshape(len(rows), -1)
    return np.asarray(flat / np.linalg.norm(flat, axis=1, keepdims=True))


def auc(high: Float64, low: Float64) -> float:
    """Return the probability that one of ``high`` is above one of ``low`` (Mann & Whitney 1947)."""
    above = (high[:, None] > low[None]).mean() + 0.5 * (high[:, None] == low[None]).mean()
    return float(above)


def detection(toy: Toy, size: Size) -> dict[str, Any]:
    """Return the separation by D of memorized captions, at the timesteps of code and paper."""
    captions = {key: toy.world[key] for key in ("held_out", "hard")}
    captions["memorised"] = [one["caption"] for one in toy.world["memorised"]]
    found: dict[str, Any] = {}
    for name, timestep, noises in (("t999", 999, 1), ("first", "first", 1), ("first4", "first", 4)):
        score = TriggerScore(toy.model, ScoreSettings(timestep=timestep, noises=noises, batch=64))
        d = {key: score(captions[key]).d_l2 for key in ("memorised", "held_out", "hard")}
        found[name] = {
            "auc_general": auc(d["memorised"], d["held_out"]),
            "auc_hard": auc(d["memorised"], d["hard"]),
            **{f"{key}_quartiles": quartiles(values) for key, values in d.items()},
            "general_p95": float(np.percentile(d["held_out"], 95)),
            "calls": score.calls,
            "microseconds_per_call": 1e6 * score.seconds / score.calls,
        }
    count, general = size.share
    for key, prompts in (
        ("memorised", captions["memorised"]),
        ("held_out", captions["held_out"][:general]),
    ):
        best = toy.replays(prompts, count).max(2)
        found[f"replicated_share_{key}"] = float((best > REPLAYED).mean())
        found[f"median_correlation_{key}"] = float(np.median(best))
    return found


def quartiles(values: Float64) -> list[float]:
    """Return minimum, quartiles and maximum."""
    return [float(value) for value in np.percentile(values, [0, 25, 50, 75, 100])]


def extraction(toy: Toy, size: Size, seed: int, work: Path) -> dict[str, Any]:
    """Return the captions with clusters, and the sources of the medoids."""
    images, general, least = size.extracted
    if seed:
        general = size.again
    settings = ExtractSettings(images=images, min_cluster=least)
    triggers = [one["caption"] for one in toy.world["memorised"]]
    found: dict[str, Any] = {}
    for name, prompts in (("memorised", triggers), ("general", toy.world["held_out"][:general])):
        folder = work / f"extract-{name}"
        made = extract(toy.model, prompts, settings, folder, sampling=EXTRACTING)
        with_cluster = {cluster.prompt for cluster in made.clusters}
        found[name] = {
            "prompts": len(prompts),
            "images": made.images,
            "prompts_with_a_cluster": len(with_cluster),
            "clusters": len(made.clusters),
            "sizes": [cluster.size for cluster in made.clusters],
            "calls": made.calls,
            "seconds": round(made.seconds, 1),
            **traced(toy, folder, work / f"trace-{name}", made),
        }
    return found


def by_pixels(work: Path, size: Size) -> dict[str, Any]:
    """Return the captions with clusters if the images of ``extraction`` are compared by pixels.

    For comparison with the default similarity ``builtin``, which was fitted on photographs.
    """
    settings = ExtractSettings(images=size.extracted[0], min_cluster=size.extracted[2])
    found: dict[str, Any] = {}
    for name in ("memorised", "general"):
        folder = work / f"pixels-{name}"
        shutil.copytree(work / f"extract-{name}", folder, dirs_exist_ok=True)
        made = reclustered(folder, settings, similarity="pixels", sheets=False)
        found[name] = {
            "prompts_with_a_cluster": len({cluster.prompt for cluster in made.clusters}),
            "sizes": [cluster.size for cluster in made.clusters],
        }
    return found


def traced(toy: Toy, folder: Path, out: Path, made: Extraction) -> dict[str, Any]:
    """Return the results of tracing the medoids of an extraction, and whether they are right.

    The right image of a medoid is the memorized one with the highest correlation, if that is above
    ``REPLAYED``.
    """
    if not made.clusters:
        return {"verified": 0, "memorised_images": 0, "grades": {}, "right": 0, "replaying": 0}
    result = trace(folder, [f"{toy.folder / 'training'}"], out, cache=None, workers=1)
    grades = Counter(match.grade for match in result.matches)
    right = replaying = 0
    medoids = pq.read_table(made.folder / "medoids.parquet", columns=["id", "path"]).to_pylist()
    paths = {row["id"]: made.folder / row["path"] for row in medoids}
    for match in result.matches:
        with Image.open(paths[match.image]) as picture:
            correlations = toy.correlations(np.asarray(picture.convert("RGB"))[None])[0]
        if correlations.max() > REPLAYED:
            replaying += 1
            wanted = toy.world["memorised"][int(correlations.argmax())]["training"]
            right += bool(match.verified and match.reference == Path(wanted).name)
    return {
        "verified": sum(match.verified for match in result.matches),
        "memorised_images": result.memorized,
        "grades": dict(grades),
        "replaying": replaying,
        "right": right,
    }


def rules(toy: Toy) -> Rules:
    """Return the rules of proposals: colours are not proposed, as in the authors' code."""
    return Rules(banned=tuple(toy.world["colours"]), banned_name="the toy's colour words")


def searches(toy: Toy, size: Size, seed: int, work: Path) -> dict[str, Any]:
    """Return the results of each method with the same number of model calls."""
    proposer = load_language_model(str(toy.folder / "mlm"), rules=rules(toy))
    causal = load_causal(str(toy.folder / "clm"))
    chains, steps, candidates, length = size.chains, size.iterations, size.candidates, size.length
    budget = Budget(calls=chains * steps * candidates + steps)
    settings = GibbsSettings(
        length=length, iterations=steps, candidates=candidates, temperature=0.05, kappa=None,
        rounds=1, norm="l2",
    )  # fmt: skip
    methods: list[Search] = [
        GibbsSearch(proposer, settings),
        RandomWords(proposer, RandomSettings(length)),
        Greedy(Prompts(tuple(dict.fromkeys(toy.world["general"])))),
        Conzic(proposer, ConzicSettings(length, None, candidates)),
        Zerocap(causal, ZerocapSettings(length, prefix="a")),
        Pez(toy.model, PezSettings(length, None)),
    ]
    found: dict[str, Any] = {}
    for method in methods:
        score = TriggerScore(toy.model, ScoreSettings(timestep=999, seed=seed, batch=64))
        task = SearchTask(score, chains, seed, budget, work / f"search-{method.name}")
        result = method.search(task)
        prompts = [candidate.prompt for candidate in result.best]
        found[method.name] = {
            "best": [asdict(candidate) for candidate in result.best],
            "median_best": float(np.median([candidate.score for candidate in result.best])),
            "calls": result.calls,
            "seconds": round(result.seconds, 1),
            **judged(toy, prompts, size),
            "traced": followed(toy, prompts, size, work / f"found-{method.name}"),
        }
    return found


def judged(toy: Toy, prompts: Sequence[str], size: Size) -> dict[str, Any]:
    """Return the number of prompts that reproduce a memorized image, and of different images."""
    count, least = size.judged
    above = (toy.replays(prompts, count, first=1000) > REPLAYED).sum(1)
    hits = above.max(1) >= least
    return {
        "hits": int(hits.sum()),
        "distinct": len(set(above.argmax(1)[hits].tolist())),
        "prompts_judged": len(prompts),
    }


def followed(toy: Toy, prompts: Sequence[str], size: Size, work: Path) -> dict[str, Any]:
    """Return the results of extraction and tracing for prompts."""
    images, _, least = size.extracted
    made = extract(
        toy.model,
        prompts,
        ExtractSettings(images=images, min_cluster=least),
        work / "extract",
        sampling=EXTRACTING,
    )
    return {
        "prompts_with_a_cluster": len({cluster.prompt for cluster in made.clusters}),
        **traced(toy, work / "extract", work / "trace", made),
    }


def multiplied(toy: Toy, size: Size, seed: int, work: Path, kappa: float) -> dict[str, Any]:
    """Return the results of Algorithm 2 for the first trigger, and of twelve diverse prompts."""
    steps, candidates = size.augmented
    proposer = load_language_model(str(toy.folder / "mlm"), rules=rules(toy))
    trigger = toy.world["memorised"][0]["caption"]
    # a higher temperature than for the search, as in the paper, for many prompts
    settings = AugmentSettings(
        iterations=steps, candidates=candidates, temperature=0.15, kappa=kappa, top=None, norm="l2"
    )
    score = TriggerScore(toy.model, ScoreSettings(timestep=999, seed=seed, batch=64))
    made = augment(
        SearchTask(score, seed=seed, folder=work / "augment"), proposer, [trigger], settings
    )
    bank = [one.prompt for one in made.triggers[0].prompts if one.mean >= kappa]
    picks = [bank[pick.row] for pick in diversify(toy.model, bank, size.picks, seed=seed)]
    count, least = size.judged
    above = (toy.replays(picks, count, first=1000) > REPLAYED).sum(1)
    return {
        "trigger": trigger,
        "kappa": kappa,
        "scored": made.triggers[0].scored,
        "above_kappa": made.triggers[0].above,
        "picks": picks,
        "replicating": int((above.max(1) >= least).sum()),
        "of_the_trigger": int((above[:, 0] >= least).sum()),
        "calls": made.calls,
        "seconds": round(made.seconds, 1),
    }


#: Parts of the experiment for each world, in this order.
PARTS: Mapping[str, tuple[str, ...]] = {
    "plain": ("detection", "extraction", "pixels"),
    "hard": ("detection", "search", "augmentation"),
}


def measured(world: str, part: str, seed: int, size: Size, cache: Path) -> dict[str, Any]:
    """Return the results of one part, from the cache if they are there."""
    toy = trained(world, seed, size.steps, cache)
    work = cache / "measured" / toy.name
    kept = work / f"{part}.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    start = time.perf_counter()
    figures = carried_out(part, Toy.of(toy), size, seed, work)
    figures["wall_seconds"] = round(time.perf_counter() - start, 1)
    work.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"{world} {seed} {part}: {figures['wall_seconds']:.0f} s", flush=True)
    return figures


def carried_out(part: str, toy: Toy, size: Size, seed: int, work: Path) -> dict[str, Any]:
    """Run one part."""
    if part == "detection":
        return detection(toy, size)
    if part == "extraction":
        return extraction(toy, size, seed, work)
    if part == "pixels":
        return by_pixels(work, size)
    if part == "search":
        return searches(toy, size, seed, work)
    kappa = json.loads((work / "detection.json").read_text())["t999"]["general_p95"]
    return multiplied(toy, size, seed, work, kappa)


def bars(found: Mapping[str, Mapping[str, list[dict[str, Any]]]], size: Size) -> list[Bar]:
    """Return the medians over seeds with limits."""
    plain, hard = found["plain"], found["hard"]

    def median(rows: list[dict[str, Any]], read: Callable[[dict[str, Any]], float]) -> float:
        return float(np.median([read(row) for row in rows]))

    search = hard["search"]
    made = [
        ("AUC of D, memorised against general captions (plain)", "detection", "auc_general", 0.95),
        (
            "AUC of D, memorised against captions of their form (plain)",
            "detection",
            "auc_hard",
            0.9,
        ),
    ]
    told = [
        Bar(name, median(plain[part], lambda row, key=key: row["t999"][key]), limit, most=False)
        for name, part, key, limit in made
    ]
    return [
        *told,
        Bar(
            "replicated share, memorised captions (plain)",
            median(plain["detection"], lambda row: row["replicated_share_memorised"]),
            *(0.85, False),
        ),
        Bar(
            "replicated share, general captions (plain)",
            median(plain["detection"], lambda row: row["replicated_share_held_out"]),
            0.05,
        ),
        *(
            Bar(
                f"of {size.extracted[1]} general captions, with a cluster by {name} (plain, first"
                " seed)",
                float(plain[part][0]["general"]["prompts_with_a_cluster"]),
                1,
            )
            for part, name in (("pixels", "pixels"), ("extraction", "builtin"))
        ),
        Bar(
            "memorised pictures found by Gibbs sampling (hard)",
            median(search, lambda row: row["gibbs"]["distinct"]),
            *(2, False),
        ),
        Bar(
            "chains of Gibbs sampling that hit one (hard)",
            median(search, lambda row: row["gibbs"]["hits"]),
            *(3, False),
        ),
        Bar(
            "median best D, Gibbs sampling / random words (hard)",
            median(search, lambda row: row["gibbs"]["median_best"] / row["random"]["median_best"]),
            *(1.2, False),
        ),
        Bar(
            f"of {size.picks} picks of an augmented trigger, replicating (hard)",
            median(hard["augmentation"], lambda row: row["replicating"]),
            *(6, False),
        ),
    ]


def main(argv: Sequence[str]) -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=Path("memorization-work"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", help="WORLD:PART, to carry out in a process of its own")
    parser.add_argument("--quick", action="store_true")
    wish = parser.parse_args(argv)
    size = QUICK if wish.quick else Size()
    parts = [(world, part) for world, several in PARTS.items() for part in several]
    if wish.only:
        parts = [tuple(wish.only.split(":"))]
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for world, part in parts:
        found.setdefault(world, {})[part] = [
            measured(world, part, seed, size, wish.cache) for seed in wish.seeds
        ]
    if wish.only:
        return
    figures = {"seeds": wish.seeds, "size": asdict(size), **found}
    target = wish.cache / "experiment.py" if wish.quick else Path(__file__)
    write(str(target), bars(found, size), figures)
    examples = wish.cache / "examples" if wish.quick else ROOT / "examples"
    toy = Toy.of(trained("plain", wish.seeds[0], size.steps, wish.cache))
    print(write_page(target.with_suffix(".json"), shown(toy), examples))


def shown(toy: Toy) -> dict[str, Any]:
    """Return images for the page: repeated ones, and those generated from captions."""
    triggers = [one["caption"] for one in toy.world["memorised"]]
    general = toy.world["held_out"][: len(triggers)]

    def made(prompts: Sequence[str], seed: int) -> npt.NDArray[np.uint8]:
        encoded = toy.model.encode_prompt(list(prompts))
        return toy.model.sample(encoded, [seed] * len(prompts), EXTRACTING)

    return {
        "training images that are repeated": toy.memorised,
        "generated from their captions": made(triggers, 1),
        "generated from the same captions, other noise": made(triggers, 2),
        "generated from captions that were not trained": made(general, 1),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
