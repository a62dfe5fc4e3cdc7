"""Make a few small data sets with leaks between them, and compare them by a study file.

    python examples/study.py DIR

The photographs are regions of the images that ship inside the scikit-image package: no download.
The results of the study are printed with the planted leaks.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from demo import photographs
from PIL import Image, ImageOps

#: Unique images of each set.
OWN: Final = {
    "shore/train": 12,
    "shore/val": 6,
    "shore/test": 8,
    "attic/train": 10,
    "attic/test": 8,
}

#: Leaks: images of the one set are made of images of the other, in these ways alternately.
LEAKS: Final[tuple[tuple[str, str, int], ...]] = (
    ("shore/test", "shore/train", 3),
    ("shore/test", "shore/val", 1),
    ("attic/test", "attic/train", 2),
    ("attic/test", "shore/train", 2),
)

#: A crawl has images of all sets, under other names.
CRAWL: Final = {"shore/test": 4, "attic/test": 3, "attic/train": 2}

CONFIG: Final = """\
# Two small data sets and a crawl. Sources count from this file's folder.
title = "Two data sets and a crawl"

[sets.shore-train]
dataset = "shore"
split = "train"
roles = ["training"]
source = "shore/train"

# Used for training too, as COCO's val is.
[sets.shore-val]
dataset = "shore"
split = "val"
roles = ["benchmark", "training"]
source = "shore/val"

# A later release: all of train and val.
[sets.shore-train2]
dataset = "shore"
split = "train, second release"
roles = ["training"]
contains = ["shore-train", "shore-val"]
source = "shore/train2"

[sets.shore-test]
dataset = "shore"
split = "test"
roles = ["benchmark"]
source = "shore/test"

[sets.attic-train]
dataset = "attic"
split = "train"
roles = ["training"]
source = "attic/train"

[sets.attic-test]
dataset = "attic"
split = "test"
roles = ["benchmark"]
source = "attic/test"

[sets.crawl]
roles = ["pretraining"]
source = "crawl"

# Nobody has filled this one in: it is skipped, and said.
[sets.elsewhere]
roles = ["pretraining"]
source = ""
"""


def _jpeg(image: Image.Image, quality: int = 90) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


#: Ways to make a leak of an encoded image.
WAYS: Final[tuple[Callable[[bytes], bytes], ...]] = (
    lambda raw: raw,
    lambda raw: _jpeg(Image.open(io.BytesIO(raw)), 40),
    lambda raw: _jpeg(ImageOps.mirror(Image.open(io.BytesIO(raw)))),
)

Sets = dict[str, dict[str, bytes]]


def build(folder: Path) -> dict[tuple[str, str], int]:
    """Write the sets and ``sets.toml``; return the number of leaks by pair of sets.

    The result is deterministic.
    """
    taken = iter(photographs(sum(OWN.values())))
    sets: Sets = {
        name: {f"{number:02d}.jpg": _jpeg(next(taken)[1]) for number in range(count)}
        for name, count in OWN.items()
    }
    truth = _plant(sets)
    sets["shore/train2"] = {f"second/{n}": raw for n, raw in sets["shore/train"].items()}
    sets["shore/train2"] |= {f"val/{n}": raw for n, raw in sets["shore/val"].items()}
    # a leak into a set is also a leak into the set that contains it
    for part in ("shore-train", "shore-val"):
        for (query, reference), count in list(truth.items()):
            if reference == part:
                both = (query, "shore-train2")
                truth[both] = truth.get(both, 0) + count
    for name, files in sets.items():
        for file, raw in files.items():
            path = folder / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(raw)
    (folder / "sets.toml").write_text(CONFIG, encoding="utf-8")
    return truth


def _plant(sets: Sets) -> dict[tuple[str, str], int]:
    """Add the leaks to the sets; return their number by query and reference."""
    truth = {}
    # each image leaks once: sources are taken from the start, those of the crawl from the end
    own = {name: list(files.values()) for name, files in sets.items()}
    front = {name: iter(files) for name, files in own.items()}
    for query, reference, count in LEAKS:
        for way, source in zip(WAYS, [next(front[reference]) for _ in range(count)], strict=False):
            sets[query][f"{len(sets[query]):02d}.jpg"] = way(source)
        truth[_named(query), _named(reference)] = count
    sets["crawl"] = {}
    for query, count in CRAWL.items():
        for number in range(count):
            way = WAYS[(number + 1) % len(WAYS)]
            sets["crawl"][f"{len(sets['crawl']):04d}.jpg"] = way(own[query][-1 - number])
        if query.endswith("test"):
            truth[_named(query), "crawl"] = count
    return truth


def _named(folder: str) -> str:
    return folder.replace("/", "-")


def compare(result: Mapping[str, Any], truth: Mapping[tuple[str, str], int]) -> list[str]:
    """Return planted and found leaks, one line per comparison."""
    lines = [f"{'benchmark':<12}{'reference':<14}{'planted':>8}{'near or exact':>15}"]
    for each in result["comparisons"]:
        query, reference = each["query_set"], each["reference_set"]
        found = each["rates"]["near_or_exact"]["count"]
        planted = truth.get((query, reference), 0)
        lines.append(f"{query:<12}{reference:<14}{planted:>8}{found:>15}")
    return lines


def main(folder: Path) -> int:
    """Build the sets, compare them by the command line, print the truth; exit code."""
    truth = build(folder)
    out = folder / "study"
    command = ["visleak", "audit", "--config", str(folder / "sets.toml"), "-o", str(out)]
    print("$", *command, flush=True)
    program = [sys.executable, "-m", *command]
    done = subprocess.run([*program, "--cache", str(folder / "cache")], check=False)
    if done.returncode:
        return done.returncode
    result = json.loads((out / "study.json").read_text(encoding="utf-8"))
    print("\n" + "\n".join(compare(result, truth)))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "study-example")))
