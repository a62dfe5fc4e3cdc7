"""A command as trainer: ``command:'TEMPLATE'``, split into words without a shell.

``docs/dlede.md`` lists the placeholders, with command lines of YOLOv5 and YOLOv7; only files that
the template names are written. The program runs in the folder and with the environment of visleak;
what it prints is its log. Files that the command names are part of the key of every training run;
what these load is not.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from visleak.dlede.draw import Split
from visleak.dlede.train import LOG, Outcome, PreparedTrainer, TrainingFailed, TrainingTask
from visleak.dlede.train.execution import run_command
from visleak.dlede.trainers import TrainerRequest
from visleak.dlede.trainers.handover import (
    ImageSizes,
    check_boxes,
    check_folder,
    check_split,
    files_of,
    rows_by_name,
    side_of,
    write_coco,
    write_links,
    write_list,
    write_yolo,
)
from visleak.errors import UsageError, explaining, one_line
from visleak.progress import Progress
from visleak.quantities import is_share_name
from visleak.records import Float64
from visleak.storage import file_digest

#: Placeholders that need boxes, and those that need image sizes even if boxes are shares.
WITH_BOXES: Final = ("data", "train_json", "test_json")
WITH_SIZES: Final = ("train_json", "test_json")
WITH_LABELS: Final = ("data", "train_folder", "test_folder")


@dataclass(frozen=True)
class CommandTrainer:
    """Trains by a command; see the module."""

    template: Template  # the command
    time_limit: float | None = None  # time limit of a training run in seconds, or None
    sizes: ImageSizes | None = None  # of the images of the split, if they are needed
    name: str = "command"
    decides: tuple[str, ...] = ("map50", "f1", "accuracy")
    lower: tuple[str, ...] = ()

    @property
    def takes_epochs(self) -> bool:
        """Whether the command has a placeholder for the epochs."""
        return "epochs" in self.template.names

    def about(self) -> dict[str, object]:
        """Return template, default ``{epochs}`` and file digests: edited programs train again."""
        about: dict[str, object] = {"command": self.template.text}
        files = {}
        for name, path in sorted(self.template.files().items()):
            with explaining(f"--trainer command: {path} cannot be read", OSError):
                files[name] = file_digest(path)
        about |= {"files": files} if files else {}
        return about | ({"epochs": EPOCHS} if self.takes_epochs else {})

    def prepare(self, split: Split, folder: Path, progress: Progress) -> PreparedTrainer:
        """Check that the program exists and that the split can be written as files."""
        template, word = self.template, self.template.words[0]
        if not PLACEHOLDER.search(word) and shutil.which(word) is None:
            place = "here" if os.sep in word else "on the PATH"
            raise UsageError(f"--trainer command: there is no program {word!r} {place}")
        check_split(split)
        if needy := [name for name in WITH_BOXES if name in template.names]:
            check_boxes(split, f"{{{needy[0]}}}")
        if template.has(WITH_LABELS):
            check_folder(folder)
        boxes = split.train_boxes
        pixels = boxes is not None and not boxes.relative and template.has(WITH_LABELS)
        needed = pixels or template.has(WITH_SIZES)
        return replace(self, sizes=ImageSizes.of(split, progress) if needed else None)

    def train(self, task: TrainingTask, folder: Path) -> Outcome:
        """Run the command and read what it left."""
        if task.epochs is not None and not self.takes_epochs:
            raise TrainingFailed(
                f"{task.epochs} epochs are requested, and the command has no placeholder {{epochs}}"
            )
        folder = Path(os.path.abspath(folder))
        words = self.template.filled(TaskFiles(task, folder, self.sizes))
        run_command(words, folder / LOG, limit=self.time_limit)
        if "out" in self.template.names and (folder / OUT).is_file():
            rows = rows_by_name(folder / GIVEN, task.test)
            return read_json(folder / OUT, rows, len(task.test))
        if "folder" in self.template.names:
            return read_yolo(folder, apart=GIVEN)
        raise TrainingFailed("it ended well and left no result: it has not written {out}")


def command_trainer(request: TrainerRequest) -> CommandTrainer:
    """Return the trainer of ``command:'TEMPLATE'``."""
    return CommandTrainer(Template.of(request.argument), request.time_limit)


EPOCHS: Final = 100  # epochs of the paper, at every step (section 4)
GIVEN: Final = "given"  # names in the folder of a run: its inputs, and its result
OUT: Final = "metrics.json"
#: ``{name}``; braces around anything else stay as they are.
PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_][A-Za-z_0-9]*)\}")
#: Words that only a shell understands.
_SHELL: Final = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "&>"})
TRAINING: Final = ("train", "data", "train_json", "train_folder")
RESULT: Final = ("out", "folder")


@dataclass(frozen=True)
class TaskFiles:
    """What placeholders are filled from."""

    task: TrainingTask
    folder: Path  # of the training run
    sizes: ImageSizes | None  # of the images, if they are needed

    @property
    def given(self) -> Path:
        """The folder of its inputs."""
        return self.folder / GIVEN


#: What parts the names of files in a word, as in ``--cfg=a.yaml,b.yaml`` or ``-c 'python a.py'``.
_PARTS: Final = re.compile(r"[\s=,:;&|<>()'\"]+")
#: Placeholder -> its value; writes the files that it names.
FILLED: Final[Mapping[str, Callable[[TaskFiles], object]]] = {
    "train": lambda h: write_list(h.given / "train.txt", files_of(h.task.train)),
    "test": lambda h: write_list(h.given / "test.txt", files_of(h.task.test)),
    "out": lambda h: h.folder / OUT,
    "seed": lambda h: h.task.seed,
    "epochs": lambda h: h.task.epochs or EPOCHS,
    "step": lambda h: h.task.step,
    "repetition": lambda h: h.task.repetition,
    "folder": lambda h: h.folder,
    "data": lambda h: write_yolo(h.given, h.task, h.sizes),
    "train_json": lambda h: write_coco(h.given / "train.json", side_of(h.task, h.sizes, "train")),
    "test_json": lambda h: write_coco(h.given / "test.json", side_of(h.task, h.sizes, "test")),
    "train_folder": lambda h: write_links(h.given, h.task, h.sizes, "train"),
    "test_folder": lambda h: write_links(h.given, h.task, h.sizes, "test"),
}


@dataclass(frozen=True, slots=True)
class Template:
    """A command line with placeholders."""

    text: str  # as it was written
    words: tuple[str, ...]  # its words, with their placeholders

    @classmethod
    def of(cls, text: str) -> Template:
        """Split a text into words as a shell would, which it is never given to.

        >>> Template.of("train.py --list '{train}' --out={out}").words
        ('train.py', '--list', '{train}', '--out={out}')
        """
        try:
            made = cls(text, tuple(shlex.split(text)))
        except ValueError as error:
            raise UsageError(f"--trainer command: {str(error).lower()} in {text!r}") from error
        if wrong := made._fault():
            raise UsageError(f"--trainer command: {wrong}")
        return made

    @property
    def names(self) -> frozenset[str]:
        """The placeholders in it."""
        return frozenset(name for word in self.words for name in PLACEHOLDER.findall(word))

    def has(self, names: Sequence[str]) -> bool:
        """Whether one of some placeholders is in it."""
        return not self.names.isdisjoint(names)

    def files(self) -> dict[str, Path]:
        """Return the files that the command names: the program if it is a script, and others.

        ``--cfg=yolo.yaml`` names a file, and so do ``bash -c 'python train.py'`` and ``-m
        package.train``. What the named files load in turn is not found.
        """
        found: dict[str, Path] = {}
        if program := shutil.which(self.words[0]):
            with contextlib.suppress(OSError), open(program, "rb") as file:
                # a text that another program runs, not an interpreter itself
                if file.read(2) == b"#!":
                    found[self.words[0]] = Path(program)
        for before, word in zip(self.words, self.words[1:], strict=False):
            names = [word, f"{word}/__main__.py", *_PARTS.split(word)]
            if before == "-m":
                module = word.replace(".", "/")
                names += [f"{module}.py", f"{module}/__main__.py"]
            found |= {name: Path(name) for name in names if name and os.path.isfile(name)}
        return found

    def _fault(self) -> str:
        """Return why the command cannot train; empty if it can."""
        if not self.words:
            return (
                "no command follows; such as command:'python train.py {train} {test} {out} {seed}'"
            )
        if unknown := sorted(self.names - FILLED.keys()):
            known = ", ".join(f"{{{name}}}" for name in FILLED)
            return f"{{{unknown[0]}}} is not a placeholder; there are {known}"
        if not self.has(TRAINING):
            return (
                "the command does not get the training images; it needs one of"
                f" {', '.join(f'{{{name}}}' for name in TRAINING)}"
            )
        if not self.has(RESULT):
            return (
                "no result can come back; the command needs {out}, the json to be written, or"
                " {folder}, in which YOLO's results.txt or results.csv is found"
            )
        shell = next((word for word in self.words if word in _SHELL), None)
        return (
            f"no shell reads {shell!r}; write the steps into a script, and name that"
            if shell
            else ""
        )

    def filled(self, handing: TaskFiles) -> list[str]:
        """Return the words for one training, and write the files they name."""
        handing.given.mkdir()
        values = {name: str(FILLED[name](handing)) for name in sorted(self.names)}
        return [PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in self.words]


# -- result files of a training run: our JSON, or YOLO's results.txt and .csv ----------------------
#
# Of YOLO's files the last epoch counts. The best one is the best on the test set, and to choose it
# would itself be a leak.


MAX_BYTES: Final = 256 << 20  # larger files are not results
#: Columns of ``results.csv`` -> metric; YOLOv5's and YOLOv9's names, then Ultralytics'. ``(B)``,
#: for boxes, is cut off before.
COLUMNS: Final = {
    "precision": "precision",
    "recall": "recall",
    "mAP_0.5": "map50",
    "mAP_0.5:0.95": "map50_95",
    "mAP50": "map50",
    "mAP50-95": "map50_95",
    "accuracy_top1": "accuracy",
    "accuracy_top5": "accuracy_top5",
}
#: Place of each metric in a row of ``results.txt``, as YOLOv7 and YOLOv5 up to 5.0 write it: epoch,
#: memory, box, obj, cls, total, labels, img_size, P, R, mAP@.5, mAP@.5:.95, val box, obj, cls.
PLACES: Final = {"precision": 8, "recall": 9, "map50": 10, "map50_95": 11}
_WIDTH: Final = 15
YOLO_FILES: Final = ("results.txt", "results.csv")


def f1_of(precision: float, recall: float) -> float:
    """Return the harmonic mean of precision and recall of one training, 0 where both are 0."""
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0


def read_json(path: Path, rows: Mapping[str, int], images: int) -> Outcome:
    """Read the json that a command wrote: name of each metric to its value over the test set.

    ``precision``, ``recall``, ``f1``, ``map50``, ``map50_95``, ``accuracy`` are shares; any other
    number is a metric as well. ``f1`` that is missing is made of precision and recall.
    ``"images": {metric: {image: value}}`` holds values of single images, named by id or path; null
    or no value is unknown. What is not a number, or not finite, or not a metric of ours is left out
    and named in ``Outcome.about``.
    """
    try:
        content = json.loads(_bounded(path))
    except (OSError, ValueError, RecursionError) as error:
        raise TrainingFailed(f"{path.name} cannot be read as json: {one_line(error)}") from error
    if not isinstance(content, dict):
        raise TrainingFailed(
            f"{path.name} holds {_kind(content)}; it must be an object, such as"
            ' {"map50": 0.61, "f1": 0.58}'
        )
    single = content.pop("images", None)
    metrics, left_out = {}, {}
    for name, value in content.items():
        if is_share_name(name):
            metrics[name] = _share(name, value, path)
        elif (number := _finite(value)) is not None:
            metrics[name] = number
        else:
            left_out[name[:100]] = _kind(value)
    if not metrics:
        raise TrainingFailed(
            f"{path.name} has no metric; it needs precision, recall, map50 and f1, or any other"
            ' numbers, such as {"accuracy": 0.9}'
        )
    about = {"result": path.name} | ({"left_out": left_out} if left_out else {})
    return Outcome(_with_f1(metrics), _of_images(single, rows, images, path), about)


def _bounded(path: Path) -> bytes:
    if path.stat().st_size > MAX_BYTES:
        raise TrainingFailed(f"{path.name} is larger than {MAX_BYTES >> 20} MiB")
    return path.read_bytes()


def _finite(value: object) -> float | None:
    """Return a number, ``None`` of everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number too large for a float
        return None


def _kind(value: object) -> str:
    if isinstance(value, bool | float) or value is None:
        return json.dumps(value)
    kinds = ((str, "a text"), (list, "a list"), (dict, "an object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "too large a number")


def _share(name: str, value: object, path: Path) -> float:
    number = _finite(value)
    if number is None:
        shown = f"{value[:40]!r}, a text" if isinstance(value, str) else _kind(value)
        raise TrainingFailed(f"{path.name}: {name} is {shown}; it must be a number from 0 to 1")
    if not -1e-6 <= number <= 1 + 1e-6:
        hint = "; percent are to be divided by 100" if 1 < number <= 100 else ""
        raise TrainingFailed(f"{path.name}: {name} is {number:g}; it is a share from 0 to 1{hint}")
    return min(1.0, max(0.0, number))


def _with_f1(metrics: dict[str, float]) -> dict[str, float]:
    if "f1" not in metrics and {"precision", "recall"} <= metrics.keys():
        return metrics | {"f1": f1_of(metrics["precision"], metrics["recall"])}
    return metrics


def _of_images(
    content: object, rows: Mapping[str, int], images: int, path: Path
) -> dict[str, Float64]:
    found: dict[str, Float64] = {}
    wrong = TrainingFailed(
        f'{path.name}: "images" must be {{metric: {{image: number}}}}, images by id or path'
    )
    if content is not None and not isinstance(content, dict):
        raise wrong
    for metric, values in (content or {}).items():
        if not isinstance(values, dict):
            raise wrong
        column = found[metric] = np.full(images, np.nan)
        for name, value in values.items():
            if name not in rows:
                raise TrainingFailed(
                    f'{path.name}: "images" names {name[:200]!r}, which is neither id nor path of'
                    " a test image"
                )
            number = _finite(value)
            if number is None and not (value is None or isinstance(value, float)):
                raise wrong
            column[rows[name]] = np.nan if number is None else number
    return found


def read_yolo(folder: Path, apart: str = "") -> Outcome:
    """Read the last epoch of the one ``results.txt`` or ``.csv`` below a folder, and its F1."""
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(name for name in folders if here != folder or name != apart)
        found += [here / name for name in YOLO_FILES if name in files]
    if not found:
        raise TrainingFailed(f"it left no result: no {' or '.join(YOLO_FILES)} in {folder}")
    if len(found) > 1:
        named = " and ".join(os.path.relpath(path, folder) for path in found[:2])
        raise TrainingFailed(
            f"it left {len(found)} results, {named}; let it write one, or the {{out}} json"
        )
    path = found[0]
    try:
        text = _bounded(path).decode(errors="replace")
    except OSError as error:
        raise TrainingFailed(f"{path.name} cannot be read ({error.strerror})") from error
    cells, epoch = (_last_of_text if path.suffix == ".txt" else _last_of_csv)(text, path)
    metrics = {}
    for name, cell in cells.items():
        try:
            metrics[name] = _share(name, float(cell), path)
        except ValueError as error:
            shown = cell.strip()[:40]
            raise TrainingFailed(f"{path.name}: {name} is {shown!r}, no number") from error
    return Outcome(_with_f1(metrics), about={"result": path.name, "epoch": epoch})


def _last_of_text(text: str, path: Path) -> tuple[dict[str, str], str]:
    rows = [line.split() for line in text.splitlines() if line.strip()]
    if not rows or len(rows[-1]) != _WIDTH or "/" not in rows[-1][0]:
        raise TrainingFailed(
            f"{path.name} does not end with a row of YOLOv7's: {_WIDTH} columns, epoch first, then"
            " memory, losses, labels, size, P, R, mAP@.5, mAP@.5:.95"
        )
    row = rows[-1]
    return {name: row[at] for name, at in PLACES.items()}, row[0]


def _last_of_csv(text: str, path: Path) -> tuple[dict[str, str], str]:
    rows = [row for row in csv.reader(text.splitlines()) if any(cell.strip() for cell in row)]
    header = [cell.strip() for cell in rows[0]] if rows else []
    # those of boxes, where the file also has masks or key points
    plain = [cell.removeprefix("metrics/").removesuffix("(B)") for cell in header]
    known = {COLUMNS[cell]: at for at, cell in enumerate(plain) if cell in COLUMNS}
    if not known:
        raise TrainingFailed(
            f"{path.name} has no column such as metrics/mAP50(B) or metrics/mAP_0.5; it has"
            f" {', '.join(header)[:200] or 'none'}"
        )
    row = rows[-1]
    if len(rows) < 2 or len(row) != len(header):
        raise TrainingFailed(f"{path.name} does not end with a whole row")
    epoch = row[header.index("epoch")].strip() if "epoch" in header else ""
    return {name: row[at] for name, at in known.items()}, epoch
