"""Results of other tools with default settings on CIFAR-10 and on changed photographs.

    python benchmarks/peers.py --peer fastdup=PYTHON --peer imagededup=PYTHON ... --set photographs

PYTHON is an interpreter with the tool. Every tool runs in its own process on the same folder of PNG
files with `train` and `test`:

- photographs: all 500 in `train`; in `test` every fifth of the reported half, under each of the 18
  changes of Ramos et al. (2025). The results are the share of changed photographs that are listed
  in a pair with their original, and the number of listed pairs of different photographs.
- cifar10: all 60,000 images. Test images of even index are ranked by the strongest pair with a
  training image, against the verdicts of people, as in `detection_cifar.py`.

`visleak` is evaluated on the photographs in the same way; its cross-validated results on CIFAR-10
are in `detection.json`. Results of tools that are not named stay in the JSON file.
"""

import argparse
import csv
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from detection_cifar import Queries, by_query, ranking
from PIL import Image
from record import data_folder, known_figures, write
from samples import judgements

from visleak.robustness.conditions import PAPER, bounded

#: A description and a program that computes ``rows`` of two files and a score that grows with
#: similarity; its arguments are the folder, the file to write, and a folder for temporary files.
TOOLS = {
    "visleak": (
        "defaults, pairs graded near or exact",
        """
import visleak
found = visleak.audit(sys.argv[1], out=sys.argv[3], cache=None, workers=1).pairs(grade="near")
rows = zip(*(found[name].to_pylist() for name in ("query", "reference", "probability")))
""",
    ),
    "fastdup": (
        "cosine above 0.9 (its default); 20 neighbours, not 2: an original has 18 changed copies",
        """
import fastdup
tool = fastdup.create(work_dir=sys.argv[3], input_dir=sys.argv[1])
tool.run(overwrite=True, nearest_neighbors_k=20)
found = tool.similarity()
rows = zip(found["filename_from"], found["filename_to"], found["distance"])
""",
    ),
    "imagededup": (
        "PHash, Hamming distance of 10 at most (its default)",
        """
from imagededup.methods import PHash
found = PHash(verbose=False).find_duplicates(image_dir=sys.argv[1], recursive=True, scores=True)
rows = [(a, b, 64 - bits) for a, near in found.items() for b, bits in near]
""",
    ),
    "cleanvision": (
        "defaults: exact and near duplicates",
        """
from cleanvision import Imagelab
tool = Imagelab(data_path=sys.argv[1], verbose=False)
tool.find_issues({"exact_duplicates": {}, "near_duplicates": {}}, verbose=False)
kinds = ("exact_duplicates", "near_duplicates")
sets = [each for kind in kinds for each in tool.info[kind]["sets"]]
rows = [(a, b, 1) for each in sets for a in each for b in each if a != b]
""",
    ),
}
BEFORE = "import sys\nif __name__ == '__main__':\n"
AFTER = """
import csv, os
with open(sys.argv[2], "w", newline="") as file:
    csv.writer(file).writerows((os.path.basename(a), os.path.basename(b), s) for a, b, s in rows)
"""
#: Of the reported photographs every STEP-th is changed.
STEP = 5
#: Tools that cannot be installed from package registries alone.
MISSING = {
    "imagededup, CNN": "its weights are fetched from another host",
    "FiftyOne, near-duplicates and similarity": "the network is in its model zoo on another host",
    "SSCD and a threshold": "its weights are fetched from another host",
    "fastdup, photographs": "two neighbours are other changed copies here; 20 took too long",
}

Listed = list[tuple[str, str, float]]


def listed(name: str, python: str, folder: Path) -> tuple[Listed, float]:
    """Return the pairs that a tool lists in a folder, in both directions, and its seconds."""
    with tempfile.TemporaryDirectory() as work:
        program, out = Path(work) / "program.py", Path(work) / "pairs.csv"
        body = (TOOLS[name][1] + AFTER).replace("\n", "\n    ")
        program.write_text(BEFORE + body)
        begun = time.perf_counter()
        command = [python, str(program), str(folder), str(out), f"{work}/own"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - begun
        with out.open(newline="") as file:
            rows = [(left, right, float(score)) for left, right, score in csv.reader(file)]
    return rows + [(right, left, score) for left, right, score in rows], seconds


def photographs(data: Path, folder: Path) -> dict[str, list[str]]:
    """Write originals and changed photographs; return the files of each change."""
    originals = dict(_bounded(data))
    for stem, pixels in originals.items():
        Image.fromarray(pixels).save(folder / "train" / f"{stem}.png")
    reported = [stem for place, stem in enumerate(originals) if place % 4 >= 2][::STEP]
    files: dict[str, list[str]] = {}
    for condition in PAPER[1:]:
        for stem in reported:
            pixels = condition.of(originals[stem], f"{stem}.jpg")
            if pixels is not None:
                file = f"{condition.name}~{stem}.png"
                Image.fromarray(pixels).save(folder / "test" / file)
                files.setdefault(condition.name, []).append(file)
    return files


def _bounded(data: Path) -> Iterator[tuple[str, np.ndarray]]:
    for path in sorted((data / "photos").iterdir()):
        if path.suffix == ".jpg":
            yield path.stem, bounded(np.asarray(Image.open(path).convert("RGB")))


def on_photographs(pairs: Listed, files: dict[str, list[str]]) -> dict[str, object]:
    """Return the number of changed photographs listed with their original, by change."""
    between = {(a, b) for a, b, _ in pairs if "~" in a and "~" not in b}
    own = {a for a, b in between if a.partition("~")[2] == b}
    every = [file for changed in files.values() for file in changed]
    return {
        "queries": len(every),
        "found": len(own & set(every)) / len(every),
        "wrong_pairs": sum(a.partition("~")[2] != b for a, b in between),
        "by_change": {
            name: len(own & set(changed)) / len(changed) for name, changed in files.items()
        },
    }


def cifar10(data: Path, folder: Path) -> Queries:
    """Write CIFAR-10 as PNG files, `test_7.png` and `train_7.png`; return its judged pairs."""
    for name in ("test", "train"):
        table = pq.read_table(data / "cifar10" / f"{name}.parquet", columns=["image", "index"])
        for row in table.to_pylist():
            image = Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")
            image.save(folder / name / f"{name}_{row['index']}.png")
    return Queries.of(judgements(data))


def on_cifar10(pairs: Iterable[tuple[str, str, float]], queries: Queries) -> dict[str, object]:
    """Return how well the strongest pair of a test image predicts a near-duplicate."""
    between = [(a, s) for a, b, s in pairs if a.startswith("test") and b.startswith("train")]
    query = np.array([int(a[5:-4]) for a, _ in between], np.int64)
    score = by_query(query, np.array([s for _, s in between], np.float64))
    rows = np.flatnonzero(queries.counted)
    found, near = score[rows] > -1.0, queries.near[rows]
    return {
        **ranking(score, queries, queries.counted),
        "listed": int(found.sum()),
        "recall": float((found & near).sum() / near.sum()),
        "precision": float((found & near).sum() / max(1, found.sum())),
        "listed_of_all": int((score > -1.0).sum()),
    }


SETS: dict[str, tuple[Callable, Callable]] = {
    "photographs": (photographs, on_photographs),
    "cifar10": (cifar10, on_cifar10),
}


def version_of(name: str, python: str) -> str:
    """Return the version of a tool."""
    program = f"from importlib.metadata import version; print(version({name!r}))"
    ran = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True)
    return ran.stdout.strip()


def main() -> None:
    """Evaluate every tool that is named, and keep the results of the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", action="append", required=True, metavar="NAME=PYTHON")
    parser.add_argument("--set", dest="sets", action="append", choices=SETS, required=True)
    arguments = parser.parse_args()
    data = data_folder("cifar10/verdicts_dev.csv", "photos")
    peers = known_figures(__file__).get("peers", {})
    for each in arguments.sets:
        lay, measure = SETS[each]
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work)
            for side in ("train", "test"):
                (folder / side).mkdir()
            truth = lay(data, folder)
            for name, _, python in (text.partition("=") for text in arguments.peer):
                pairs, seconds = listed(name, python, folder)
                known = peers.setdefault(name, {"used": TOOLS[name][0]})
                known["version"] = version_of(name, python)
                known[each] = {**measure(pairs, truth), "seconds": round(seconds, 1)}
                print(f"{name} on {each}: {known[each]}", file=sys.stderr)
    write(__file__, [], {"peers": peers, "not_measured": MISSING})


if __name__ == "__main__":
    main()
