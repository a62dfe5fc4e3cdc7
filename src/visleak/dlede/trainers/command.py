"""A command as trainer: ``command:'TEMPLATE'``, split into words without a shell.

Placeholders, of which only those that the template names are written:

``docs/dlede.md`` lists them, with command lines of YOLOv5 and YOLOv7. The program runs in the
folder and with the environment of visleak; what it prints is its log. Files that the command names
are part of the key of every training run; what these load is not.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from visleak.dlede.draw import Split
from visleak.dlede.train import LOG, Outcome, PreparedTrainer, TrainingFailed, TrainingTask
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
from visleak.dlede.trainers.metrics_files import read_json, read_yolo
from visleak.dlede.trainers.subprocesses import carry_out
from visleak.errors import UsageError, VisleakError
from visleak.progress import Progress

#: Placeholders that need boxes, and those that need image sizes even if boxes are shares.
WITH_BOXES: Final = ("data", "train_json", "test_json")
WITH_SIZES: Final = ("train_json", "test_json")
WITH_LABELS: Final = ("data", "train_folder", "test_folder")


@dataclass(frozen=True)
class CommandTrainer:
    """Trains by a command; see the module."""

    template: Template  # the command
    time_limit: float | None = None  # time limit of a training run in seconds, or None
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
        files = {name: _digest(path) for name, path in sorted(self.template.files().items())}
        about |= {"files": files} if files else {}
        return about | ({"epochs": EPOCHS} if self.takes_epochs else {})

    def prepare(self, split: Split, folder: Path, progress: Progress) -> PreparedTrainer:
        """Check that the program exists and that the split can be written as files."""
        word = self.template.words[0]
        if not PLACEHOLDER.search(word) and shutil.which(word) is None:
            place = "here" if os.sep in word else "on the PATH"
            raise UsageError(f"--trainer command: there is no program {word!r} {place}")
        check_split(split)
        template = self.template
        needy = next((name for name in WITH_BOXES if name in template.names), None)
        if needy is not None:
            check_boxes(split, f"{{{needy}}}")
        if template.has(WITH_LABELS):
            check_folder(folder)
        boxes = split.train_boxes
        pixels = boxes is not None and not boxes.relative and template.has(WITH_LABELS)
        sizes = ImageSizes.of(split, progress) if pixels or template.has(WITH_SIZES) else None
        return PreparedCommand(template, sizes, self.time_limit)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
    except OSError as error:
        raise VisleakError(
            f"--trainer command: {path} cannot be read ({error.strerror})"
        ) from error
    return digest.hexdigest()


@dataclass(frozen=True)
class PreparedCommand:
    """A command prepared for a split."""

    template: Template  # the command
    sizes: ImageSizes | None  # of the images, if they are needed
    time_limit: float | None  # time limit of a training run in seconds, or None

    def train(self, task: TrainingTask, folder: Path) -> Outcome:
        """Run the command and read what it left."""
        if task.epochs is not None and "epochs" not in self.template.names:
            raise TrainingFailed(
                f"{task.epochs} epochs are requested, and the command has no placeholder"
                " {{epochs}}"
            )
        folder = Path(os.path.abspath(folder))
        words = self.template.filled(TaskFiles(task, folder, self.sizes))
        carry_out(words, folder / LOG, limit=self.time_limit)
        if "out" in self.template.names and (folder / OUT).is_file():
            rows = rows_by_name(folder / GIVEN, task.test)
            return read_json(folder / OUT, rows, len(task.test))
        if "folder" in self.template.names:
            return read_yolo(folder, apart=GIVEN)
        raise TrainingFailed("it ended well and left no result: it has not written {out}")


def command_trainer(request: TrainerRequest) -> CommandTrainer:
    """Return the trainer of ``command:'TEMPLATE'``."""
    return CommandTrainer(Template.of(request.argument), request.time_limit)


#: Epochs of the paper, at every step (section 4).
EPOCHS: Final = 100

#: Names in the folder of a run: its inputs, and its result.
GIVEN: Final = "given"
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
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"--trainer command: {str(error).lower()} in {text!r}") from error
        if not words:
            raise UsageError(
                "--trainer command: no command follows; such as command:'python train.py {train}"
                " {test} {out} {seed}'"
            )
        made = cls(text, tuple(words))
        made._check()
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

        ``--cfg=yolo.yaml`` names a file, ``bash -c 'python train.py'`` too, and ``-m
        package.train`` one below this folder. What the named files load in turn is not found.
        """
        found: dict[str, Path] = {}
        program = shutil.which(self.words[0])
        if program is not None and _is_script(Path(program)):
            found[self.words[0]] = Path(program)
        for before, word in zip(self.words, self.words[1:], strict=False):
            names = [word, f"{word}/__main__.py", *_PARTS.split(word)]
            if before == "-m":
                module = word.replace(".", "/")
                names += [f"{module}.py", f"{module}/__main__.py"]
            found |= {name: Path(name) for name in names if name and os.path.isfile(name)}
        return found

    def _check(self) -> None:
        unknown = sorted(self.names - FILLED.keys())
        if unknown:
            known = ", ".join(f"{{{name}}}" for name in FILLED)
            raise UsageError(
                f"--trainer command: {{{unknown[0]}}} is not a placeholder; there are {known}"
            )
        if not self.has(TRAINING):
            raise UsageError(
                "--trainer command: the command does not get the training images; it needs one"
                f" of {', '.join(f'{{{name}}}' for name in TRAINING)}"
            )
        if not self.has(RESULT):
            raise UsageError(
                "--trainer command: no result can come back; the command needs {out}, the json to"
                " be written, or {folder}, in which YOLO's results.txt or results.csv is found"
            )
        shell = next((word for word in self.words if word in _SHELL), None)
        if shell is not None:
            raise UsageError(
                f"--trainer command: no shell reads {shell!r}; write the steps into a script, and"
                " name that"
            )

    def filled(self, handing: TaskFiles) -> list[str]:
        """Return the words for one training, and write the files they name."""
        handing.given.mkdir()
        values = {name: str(FILLED[name](handing)) for name in sorted(self.names)}
        return [PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in self.words]


def _is_script(path: Path) -> bool:
    """Whether a program is a text that another program runs, and not an interpreter itself."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False
