"""Effect of the leaks of CIFAR-10 on the scores of real models; also examples/impact_cifar10.md.

usage: VISLEAK_DATA=FOLDER python benchmarks/impact_cifar10.py [--work FOLDER] [--page FILE]
           [--fair FOLDER]

Three models classify the 10,000 test images:

- ResNet-20: a public network (He et al. 2016, option-A shortcuts), trained on the 50,000 training
  images; run by ``visleak evaluate classify``.
- 1-NN: the class of the nearest training image by the built-in fingerprint: a model that memorizes
  everything and does not generalize.
- ridge: scikit-learn's ridge classifier on the same fingerprints: a model too small to memorize
  much.

Leaks are those of ``visleak audit`` (automatic grades and degrees) and, on the test images of even
index, the only judged ones, those that people found (``verdicts_dev.csv``). Finished steps in
``--work`` are reused. About three minutes on two cores.

``--fair FOLDER`` is the result of ``CANDIDATES=auto sh examples/cifair.sh FOLDER`` (ten minutes
more): a fair test set, whose replacements are training images that were held out. The two models on
fingerprints are trained on the remaining images, and evaluated on both test sets. ResNet-20 was
trained on the held-out images, so it has no fair test set here.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from record import Bar, data_folder, visleak_command, write
from samples import LEFT_OUT, judgements

from visleak.encoders import load_encoder
from visleak.formats import open_images
from visleak.impact import Impact, read_impact
from visleak.impact.results import Effect
from visleak.pipeline import RunContext
from visleak.pipeline.fingerprints import fingerprint
from visleak.rates import chance, percent

Float32 = npt.NDArray[np.float32]

#: Weight of the ridge; not tuned.
RIDGE = 1.0

#: Published accuracy of the network's weights.
PUBLISHED = 0.9173

#: Queries compared at a time.
BLOCK = 500

MODELS = ("ResNet-20", "1-NN", "ridge")

#: Names of the lists by verdicts of people.
LISTS = (
    "judged near or exact",
    "judged similar only",
    "ciFAIR's list, any type",
    "ciFAIR's list, near or exact",
)

PAGE = Path(__file__).parents[1] / "examples" / "impact_cifar10.md"

#: Barz & Denzler (2020), section 5.2: error of ResNet-110 on duplicates and on all, CIFAR-10.
PAPER = (0.0, 0.0526)


def audited(data: Path, work: Path) -> Path:
    """Return the audit of the test set against the training set."""
    folder = work / "audit"
    sides = [
        f"--{name}={name}={data / 'cifar10' / f'{name}.parquet'}" for name in ("test", "train")
    ]
    subprocess.run([*visleak_command(), "audit", *sides, "-o", str(folder)], check=True)
    return folder


def answers(data: Path, work: Path) -> dict[str, Path]:
    """Return the models' predictions, by name."""
    files = {name: work / f"{name}.parquet" for name in MODELS}
    if not files["ResNet-20"].exists():
        model = f"checkpoint:{data / 'models' / 'resnet20-cifar10.th'}?arch=resnet20"
        source = str(data / "cifar10" / "test.parquet")
        command = [*visleak_command(), "evaluate", "classify", source, "--model", model]
        subprocess.run([*command, "-o", str(files["ResNet-20"])], check=True)
    if not (files["1-NN"].exists() and files["ridge"].exists()):
        cifar = data / "cifar10"
        store(by_fingerprint(cifar / "test.parquet", cifar / "train.parquet"), files)
    return files


def fair_answers(data: Path, made: Path, work: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """Return predictions on the test set and on the fair one, of models trained on neither."""
    manifest = json.loads((made / "fair" / "manifest.json").read_text())
    fair = made / "fair" / manifest["parts"][0]["opens"]["path"]
    sides = []
    for name, source in (("test", data / "cifar10" / "test.parquet"), ("fair", fair)):
        files = {model: work / f"{model}-48000-{name}.parquet" for model in MODELS[1:]}
        store(by_fingerprint(source, made / "train.parquet"), files)
        sides.append(files)
    return sides[0], sides[1]


def store(predicted: Iterator[tuple[str, npt.NDArray[Any]]], files: Mapping[str, Path]) -> None:
    """Write predictions, by index of the image."""
    for name, labels in predicted:
        ids = [str(n) for n in range(len(labels))]
        table = pa.table({"id": ids, "prediction": [str(label) for label in labels]})
        pq.write_table(table, files[name])


def by_fingerprint(test_source: Path, train_source: Path) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the predictions of the two models on fingerprints, by index of the test image."""
    from sklearn.linear_model import RidgeClassifier

    test, _ = vectors(test_source)
    train, labels = vectors(train_source)
    nearest = [
        (test[start : start + BLOCK] @ train.T).argmax(axis=1)
        for start in range(0, len(test), BLOCK)
    ]
    yield "1-NN", labels[np.concatenate(nearest)]
    yield "ridge", RidgeClassifier(alpha=RIDGE).fit(train, labels).predict(test)


def vectors(source: Path) -> tuple[Float32, npt.NDArray[Any]]:
    """Return fingerprints and labels of a set, in the order of their index."""
    images = open_images(source)
    with RunContext.at(None, 2, None) as place:
        prints = fingerprint(images, load_encoder("builtin"), place)
        rows = np.empty(prints.matrix.shape, np.float32)
        order = prints.ids.to_numpy(zero_copy_only=False).astype(np.int64)
        rows[order] = prints.matrix
    labels = np.empty(len(images), object)
    places = images.ids.to_numpy(zero_copy_only=False).astype(np.int64)
    labels[places] = images.labels.to_numpy(zero_copy_only=False)
    return rows, labels


def judged_lists(data: Path, work: Path) -> dict[str, Path]:
    """Return lists of even test images by the strongest verdict on their pairs."""
    best: dict[str, int] = {}
    for (query, _), verdict in judgements(data).items():
        if verdict != LEFT_OUT:
            best[query] = min(verdict, best.get(query, 3))
    theirs: dict[str, int] = {}
    with (data / "cifar10" / "duplicates_dev.csv").open() as lines:
        for row in csv.DictReader(lines):
            theirs[row["TestID"]] = int(row["Judgment"])
    wanted = (
        [id_ for id_, verdict in best.items() if verdict <= 1],
        [id_ for id_, verdict in best.items() if verdict == 2],
        list(theirs),
        [id_ for id_, verdict in theirs.items() if verdict <= 1],
    )
    files = {}
    for number, (name, ids) in enumerate(zip(LISTS, wanted, strict=True)):
        files[name] = work / f"judged-{number}.txt"
        files[name].write_text("".join(f"{id_}\n" for id_ in sorted(ids, key=int)))
    return files


def even_only(files: Mapping[str, Path], work: Path) -> dict[str, Path]:
    """Return the predictions on the images that people judged."""
    found = {}
    for name, file in files.items():
        table = pq.read_table(file)
        even = np.array([int(id_) % 2 == 0 for id_ in table["id"].to_pylist()])
        found[name] = work / f"{name}-even.parquet"
        pq.write_table(table.filter(pa.array(even)), found[name])
    return found


def measured(audit: Path, files: Mapping[str, Path], out: Path, *more: str) -> Impact:
    """Return the result of ``visleak impact``."""
    given = [f"--predictions={name}={file}" for name, file in files.items()]
    command = [*visleak_command(), "impact", str(audit), *given, "-o", str(out), "--force"]
    command += ["--metric", "accuracy", *more]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return read_impact(out)


# -- the page ------------------------------------------------------------------------------------


def table(effect: Effect, leaks: Sequence[str]) -> list[str]:
    """Return the table of a model in Markdown, with the rows of some leaks."""
    lines = [
        "| leak | images | subset | accuracy, % | 95 % interval | gain over all | p | Holm |",
        "|---|--:|---|--:|---|--:|--:|--:|",
    ]
    whole = effect.original
    lines.append(
        f"| | {whole.images:,} | all | {percent(whole.score.value)} | {ends(whole)} | | | |"
    )
    compared = {each.leak: each for each in effect.comparisons}
    for row in effect.rows[1:]:
        if row.leak not in leaks:
            continue
        tests = "| |"
        if row.subset == "leaked" and row.images:
            tests = f"{chance(compared[row.leak].p)} | {chance(compared[row.leak].adjusted)} |"
        gain = f"{100 * row.gain.value:+.2f}" if row.images else "-"
        lines.append(
            f"| {row.leak} | {row.images:,} | {row.subset} | {percent(row.score.value)} |"
            f" {ends(row)} | {gain} | {tests}"
        )
    return lines


def ends(row: Any) -> str:
    """Return an interval in percent."""
    if np.isnan(row.score.low):
        return "-"
    return f"{percent(row.score.low)} to {percent(row.score.high)}"


def finding(effect: Effect, leak: str) -> str:
    """Return one sentence about the effect of a leak on a model."""
    each = next(e for e in effect.comparisons if e.leak == leak)
    row = effect.row(leak, "leaked")
    wrong = row.images - round(row.images * row.score.value)
    difference = each.difference
    sentence = (
        f"{effect.model} errs on {wrong} of the {row.images:,} ({percent(1 - row.score.value)} %)"
        f" against {percent(1 - effect.original.score.value)} % of all; leaked minus others"
        f" {100 * difference.value:+.2f} points (95 % interval {100 * difference.low:.2f} to"
        f" {100 * difference.high:.2f}); p {chance(each.p)}, after Holm {chance(each.adjusted)};"
    )
    return f"{sentence} within classes, uncorrected, {chance(each.within_classes)}."


def accuracies(result: Impact, leaks: Sequence[str]) -> list[str]:
    """Return the table of all models: all images, without each leak, and the fair score."""
    header = [f"without {leak}" for leak in leaks]
    lines = [
        f"| model | all images | {' | '.join(header)} | fair, without {leaks[0]} |",
        f"|---|--:|{'--:|' * (len(leaks) + 1)}",
    ]
    for effect in result.effects:
        kept = [effect.row(leak, "non-leaked") for leak in leaks]
        cells = [percent(row.score.value) for row in kept if row is not None]
        first = next(each for each in effect.comparisons if each.leak == leaks[0])
        fair = (
            f"{percent(first.fair.value)} ({percent(first.fair.low)} to {percent(first.fair.high)})"
        )
        whole = percent(effect.original.score.value)
        lines.append(f"| {effect.model} | {whole} | {' | '.join(cells)} | {fair} |")
    return lines


def page(machine: Impact, people: Impact, fair: Impact | None) -> str:
    """Return the page."""
    leaks, lists = tuple(machine.leaks), LISTS
    main, strict = "near or exact", "judged near or exact"
    by_model = {effect.model: effect for effect in people.effects}
    lines = [
        "# Effect of the leaks of CIFAR-10 on scores",
        "",
        "Written by `benchmarks/impact_cifar10.py`, which also describes the models; the results",
        "are in `benchmarks/impact_cifar10.json`. Accuracies are in percent.",
        "",
        "```sh",
        "visleak audit --test test=test.parquet --train train=train.parquet -o audit",
        "visleak evaluate classify test.parquet \\",
        "    --model 'checkpoint:resnet20-cifar10.th?arch=resnet20' -o resnet20.parquet",
        "visleak impact audit --predictions ResNet-20=resnet20.parquet -o impact",
        "```",
        "",
        "## Results",
        "",
        "On the test images that the audit grades near or exact:",
        "",
        *(f"- {finding(effect, main)}" for effect in machine.effects),
        "",
        f"On those of {people.effects[0].images[0]:,} test images of even index that have a"
        " near-duplicate by verdicts of people:",
        "",
        *(f"- {finding(effect, strict)}" for effect in people.effects),
        "",
        "On the list of Barz & Denzler (2020), duplicates of any type, even index:",
        "",
        *(f"- {finding(effect, lists[2])}" for effect in people.effects),
        "- In their paper: ResNet-110 errs on 0 % of CIFAR-10's duplicates, against 5.26 % of all.",
        "",
        "Ridge is a control: 560 weights per class can hardly memorize single ones of 50,000"
        " images, and yet its accuracy may also be higher on leaked images, and within classes: on"
        " the list of Barz & Denzler above, and on hard or soft leaks. Such images are easier. A"
        " difference of leaked images is due to memorization, difficulty and classes; the test"
        " within classes excludes the classes, not the difficulty. A fair test set, with new"
        " images for the leaked ones, excludes more.",
        "",
        "## Three models, with and without the leak",
        "",
        *accuracies(machine, (main, "similar or closer", "hard", "hard or soft")),
        "",
        "Fair: the remaining images, weighted to the class mix of the whole test set.",
        "",
        *orders(machine, main),
        "",
        *fair_part(fair),
        "## ResNet-20, by automatic grades and degrees",
        "",
        *table(machine.effects[0], leaks),
        "",
        "p: permutation test (mid-p) of leaked images against all others; Holm: corrected over all"
        " leaks and the three models. Random: as many images drawn from all; class-matched: drawn"
        " with the class mix of the leaked images; the interval contains 95 % of 1,000 draws.",
        "",
        "## ResNet-20, by verdicts of people",
        "",
        f"Only test images of even index were judged: all are {people.effects[0].images[0]:,}"
        " here.",
        "",
        *table(by_model["ResNet-20"], lists),
        "",
    ]
    return "\n".join(lines)


def fair_part(fair: Impact | None) -> list[str]:
    """Return the part of the page about the fair test set, if there is one."""
    if fair is None:
        return []
    return [
        "## The test set and a fair one",
        "",
        "`CANDIDATES=auto sh examples/cifair.sh` holds out 2,000 training images and replaces"
        " duplicates by them. ResNet-20 was trained on these images, so it has no fair test set"
        " here; the other two were trained without them.",
        "",
        *gaps(fair),
        "",
    ]


def orders(result: Impact, leak: str) -> list[str]:
    """Return the order of the models without a leak."""
    lines = [
        "| better on all | worse | lead on all | lead without the leak | order changes | behind |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for flip in result.flips:
        if flip.leak == leak:
            lines.append(
                f"| {flip.first} | {flip.second} | {100 * flip.original:+.2f} |"
                f" {100 * flip.fair:+.2f} | {chance(flip.chance)} | {chance(flip.behind)} |"
            )
    return [
        f"Their order without {leak} leaks; the last two columns are probabilities, by bootstrap:",
        "",
        *lines,
    ]


def gaps(result: Impact) -> list[str]:
    """Return errors on the test set and on the fair one, as table 2 of Barz & Denzler (2020)."""
    lines = [
        "| model, from 48,000 images | error, test set | error, fair | gap | 95 % interval |"
        " relative gap, % | p |",
        "|---|--:|--:|--:|---|--:|--:|",
    ]
    for gap in result.gaps:
        ends = f"{100 * gap.gap.low:+.2f} to {100 * gap.gap.high:+.2f}"
        lines.append(
            f"| {gap.model} | {percent(gap.original.value)} | {percent(gap.fair.value)} |"
            f" {100 * gap.gap.value:+.2f} | {ends} | {100 * gap.relative:+.2f} | {chance(gap.p)} |"
        )
    return lines


def figures_of(result: Impact) -> dict[str, Any]:
    """Return the stored part of a result: every row and test."""
    return {
        effect.model: {
            "accuracy": effect.original.score.value,
            "rows": [
                [row.leak, row.subset, row.images, round(row.score.value, 5)]
                for row in effect.rows[1:]
                if row.images
            ],
            "tests": [
                {
                    "leak": each.leak,
                    "difference": round(each.difference.value, 5),
                    "low": round(each.difference.low, 5),
                    "high": round(each.difference.high, 5),
                    "p": each.p,
                    "holm": each.adjusted,
                    "within_classes": each.within_classes,
                    "fair": round(each.fair.value, 5),
                }
                for each in effect.comparisons
                if each.leaked
            ],
        }
        for effect in result.effects
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, help="folder for the audit and the predictions")
    parser.add_argument("--fair", type=Path, help="folder that examples/cifair.sh made")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page that is written")
    given = parser.parse_args()
    data = data_folder(
        "cifar10/train.parquet", "cifar10/verdicts_dev.csv", "models/resnet20-cifar10.th"
    )
    with tempfile.TemporaryDirectory() as scratch:
        work = given.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        audit, files = audited(data, work), answers(data, work)
        machine = measured(audit, files, work / "machine")
        lists = [f"--subset={name}={file}" for name, file in judged_lists(data, work).items()]
        people = measured(audit, even_only(files, work), work / "people", "--allow-partial", *lists)
        fair = None
        if given.fair:
            on_test, on_fair = fair_answers(data, given.fair, work)
            more = [f"--fair-predictions={name}={file}" for name, file in on_fair.items()]
            fair = measured(given.fair / "audit", on_test, work / "fair", *more)
    given.page.write_text(page(machine, people, fair))
    accuracy = machine.effects[0].original.score.value
    figures = {
        "by the machine, all test images": figures_of(machine),
        "by people, even test images": figures_of(people),
        "paper: error of ResNet-110 on duplicates, on all": list(PAPER),
        "fair test set, models from 48,000 images": {
            gap.model: {
                "original": gap.original.value,
                "fair": gap.fair.value,
                "gap": [round(end, 5) for end in (gap.gap.value, gap.gap.low, gap.gap.high)],
                "relative": round(gap.relative, 5),
                "p": gap.p,
            }
            for gap in (fair.gaps if fair else ())
        },
    }
    write(
        __file__,
        [Bar("distance to the published accuracy", abs(accuracy - PUBLISHED), 5e-5)],
        figures,
    )


if __name__ == "__main__":
    main()
