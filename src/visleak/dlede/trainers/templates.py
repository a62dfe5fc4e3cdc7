"""A command line with placeholders, and what stands in their places for one training."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from visleak.dlede.lesson import Lesson
from visleak.dlede.trainers.handing_over import (
    Sizes,
    evaluation_side,
    training_side,
    write_coco,
    write_links,
    write_list,
    write_yolo,
)
from visleak.dlede.trainers.picture_files import files_of
from visleak.errors import UsageError

#: Epochs of the paper, at every step (section 4).
EPOCHS: Final = 100

#: Names in a training's folder: what it is handed over, and what it writes.
GIVEN: Final = "given"
OUT: Final = "metrics.json"

#: ``{name}``; braces around anything else stay as they are.
PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_][A-Za-z_0-9]*)\}")

#: Words that only a shell understands.
_SHELL: Final = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "&>"})

TRAINING: Final = ("train", "data", "train_json", "train_folder")
RESULT: Final = ("out", "folder")


@dataclass(frozen=True)
class Handing:
    """What placeholders are filled from.

    Attributes:
        lesson: the training.
        folder: its own.
        sizes: of the pictures, where they are needed.
    """

    lesson: Lesson
    folder: Path
    sizes: Sizes | None

    @property
    def given(self) -> Path:
        """Where what is handed over lies."""
        return self.folder / GIVEN

    def coco(self, which: str) -> Path:
        """Write a side's COCO file."""
        side = training_side if which == "train" else evaluation_side
        return write_coco(self.given / f"{which}.json", side(self.lesson, self.sizes))

    def links(self, which: str) -> Path:
        """Write a side's folder of links."""
        return write_links(self.given, self.lesson, self.sizes, which)


#: What parts the names of files in a word, as in ``--cfg=a.yaml,b.yaml`` or ``-c 'python a.py'``.
_PARTS: Final = re.compile(r"[\s=,:;&|<>()'\"]+")

#: Placeholder -> what stands in its place; writes the files that it names.
FILLED: Final[Mapping[str, Callable[[Handing], object]]] = {
    "train": lambda h: write_list(h.given / "train.txt", files_of(h.lesson.train)),
    "test": lambda h: write_list(h.given / "test.txt", files_of(h.lesson.test)),
    "out": lambda h: h.folder / OUT,
    "seed": lambda h: h.lesson.seed,
    "epochs": lambda h: h.lesson.epochs or EPOCHS,
    "step": lambda h: h.lesson.step,
    "repetition": lambda h: h.lesson.repetition,
    "folder": lambda h: h.folder,
    "data": lambda h: write_yolo(h.given, h.lesson, h.sizes),
    "train_json": lambda h: h.coco("train"),
    "test_json": lambda h: h.coco("test"),
    "train_folder": lambda h: h.links("train"),
    "test_folder": lambda h: h.links("test"),
}


@dataclass(frozen=True, slots=True)
class Template:
    """A command line with placeholders.

    Attributes:
        text: as it was written.
        words: its words, with their placeholders.

    Raises:
        UsageError: it cannot be run, is told no training images, or has no way to give a result.
    """

    text: str
    words: tuple[str, ...]

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
                f"--trainer command: {{{unknown[0]}}} is no placeholder; there are {known}"
            )
        if not self.has(TRAINING):
            raise UsageError(
                "--trainer command: the command is not told which images to train on; it needs one"
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

    def filled(self, handing: Handing) -> list[str]:
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
