r"""A command as trainer: ``command:'TEMPLATE'``, split into words without a shell.

Placeholders, of which only those that the template names are written:

- ``{train}``, ``{test}``: text files, one absolute image path a line, as the data set has them;
- ``{data}``: a YOLO ``data.yaml`` (``train``, ``val``, ``nc``, ``names``), whose pictures are links
  with label files beside them, whatever layout the boxes came in;
- ``{train_folder}``, ``{test_folder}``: the same links as folders, ``images`` and ``labels``;
- ``{train_json}``, ``{test_json}``: COCO annotation files with absolute paths;
- ``{seed}``, ``{epochs}`` (100 unless ``--epochs`` says otherwise, as in the paper), ``{step}``,
  ``{repetition}``;
- ``{out}``: the json to be written, see :func:`visleak.dlede.trainers.metrics_files.read_json`;
- ``{folder}``: the training's own folder, in which YOLO's ``results.txt`` or ``results.csv`` is
  looked for where no ``{out}`` was written. What lies there is removed after a success.

The program runs in the folder and with the environment of visleak; what it prints is its log.
Files that the command names are part of the key of every training; what these load is not.

YOLOv7 (WongKinYiu/yolov7), from its own folder, trained as in the paper; its ``train.py`` has no
seed to set, so that repetitions differ by the images alone, and it does not evaluate but at the
end with ``--notest``::

    --trainer "command:python train.py --data {data} --epochs {epochs} --project {folder} --name run
               --weights '' --cfg cfg/training/yolov7.yaml --hyp data/hyp.scratch.p5.yaml
               --img-size 640 640 --batch-size 16 --device 0 --notest --nosave"

YOLOv5 (ultralytics/yolov5)::

    --trainer "command:python train.py --data {data} --epochs {epochs} --seed {seed} --patience 0
               --project {folder} --name run --weights '' --cfg yolov5s.yaml --noval --nosave"
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from visleak.dlede.lesson import Lesson, Outcome, Ready, Split, TrainingFailed
from visleak.dlede.runs import LOG
from visleak.dlede.trainers import Wish
from visleak.dlede.trainers.handing_over import (
    Sizes,
    check_boxes,
    check_folder,
    check_split,
    rows_by_name,
)
from visleak.dlede.trainers.metrics_files import read_json, read_yolo
from visleak.dlede.trainers.supervised import carry_out
from visleak.dlede.trainers.templates import EPOCHS, GIVEN, OUT, PLACEHOLDER, Handing, Template
from visleak.errors import UsageError, VisleakError
from visleak.pipeline.workplace import Progress

#: What needs boxes, and of that what needs sizes of the pictures even where boxes are shares.
WITH_BOXES: Final = ("data", "train_json", "test_json")
WITH_SIZES: Final = ("train_json", "test_json")
WITH_LABELS: Final = ("data", "train_folder", "test_folder")


@dataclass(frozen=True)
class CommandTrainer:
    """Trains by a command; see the module.

    Attributes:
        template: the command.
        time_limit: seconds that a training may take, or ``None``.
    """

    template: Template
    time_limit: float | None = None
    name: str = "command"
    decides: tuple[str, ...] = ("map50", "f1", "accuracy")
    lower: tuple[str, ...] = ()

    @property
    def takes_epochs(self) -> bool:
        """Whether it can be told how many epochs to train."""
        return "epochs" in self.template.names

    def about(self) -> dict[str, Any]:
        """Return the template, digests of the files it names, and what ``{epochs}`` stands for.

        So a program that was edited trains anew.

        Raises:
            VisleakError: a file cannot be read.
        """
        about: dict[str, Any] = {"command": self.template.text}
        files = {name: _digest(path) for name, path in sorted(self.template.files().items())}
        about |= {"files": files} if files else {}
        return about | ({"epochs": EPOCHS} if self.takes_epochs else {})

    def ready(self, split: Split, folder: Path, progress: Progress) -> Ready:
        """See that the program is there and that the split can be handed over.

        Raises:
            UsageError: the program is not found.
            VisleakError: the pictures are no files, or have no boxes where boxes are needed.
        """
        _check_program(self.template.words[0])
        check_split(split)
        template = self.template
        needy = next((name for name in WITH_BOXES if name in template.names), None)
        if needy is not None:
            check_boxes(split, f"{{{needy}}}")
        if template.has(WITH_LABELS):
            check_folder(folder)
        boxes = split.train_boxes
        pixels = boxes is not None and not boxes.relative and template.has(WITH_LABELS)
        sizes = Sizes.of(split, progress) if pixels or template.has(WITH_SIZES) else None
        return ReadyCommand(template, sizes, self.time_limit)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
    except OSError as error:
        raise VisleakError(
            f"--trainer command: {path} cannot be read ({error.strerror})"
        ) from error
    return digest.hexdigest()


def _check_program(word: str) -> None:
    if not PLACEHOLDER.search(word) and shutil.which(word) is None:
        place = "here" if os.sep in word else "on the PATH"
        raise UsageError(f"--trainer command: there is no program {word!r} {place}")


@dataclass(frozen=True)
class ReadyCommand:
    """A command whose split has been looked at.

    Attributes:
        template: the command.
        sizes: of the pictures, where they are needed.
        time_limit: seconds that a training may take, or ``None``.
    """

    template: Template
    sizes: Sizes | None
    time_limit: float | None

    def train(self, lesson: Lesson, folder: Path) -> Outcome:
        """Run the command and read what it left.

        Raises:
            TrainingFailed: it did not end well, or left no result.
        """
        if lesson.epochs is not None and "epochs" not in self.template.names:
            raise TrainingFailed(
                f"{lesson.epochs} epochs are asked for, and the command has no {{epochs}} to be"
                " told so"
            )
        folder = Path(os.path.abspath(folder))
        words = self.template.filled(Handing(lesson, folder, self.sizes))
        carry_out(words, folder / LOG, limit=self.time_limit)
        return self._result(lesson, folder)

    def _result(self, lesson: Lesson, folder: Path) -> Outcome:
        out = folder / OUT
        names = self.template.names
        if "out" in names and out.is_file():
            rows = rows_by_name(folder / GIVEN, lesson.test)
            return read_json(out, rows, len(lesson.test))
        if "folder" in names:
            return read_yolo(folder, apart=GIVEN)
        raise TrainingFailed("it ended well and left no result: it has not written {out}")


def command_trainer(wish: Wish) -> CommandTrainer:
    """Return the trainer of ``command:'TEMPLATE'``.

    Raises:
        UsageError: the template cannot work; one line.
    """
    return CommandTrainer(Template.of(wish.argument), wish.time_limit)
