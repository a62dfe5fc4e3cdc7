"""Trainers that teach a network of torch: what all of them share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from visleak.dlede.lesson import Draw, Lesson, Outcome, Split, TrainingFailed
from visleak.dlede.trainers.pictures import Pictures, prepare_pictures
from visleak.pipeline.workplace import Progress
from visleak.records import Int64

#: Pictures a call where nothing is learnt, and passes that are timed.
GLANCE: Final = 32
TIMED: Final = 3

#: The loss of some pictures, given by their numbers in the lesson; changes are drawn at random.
LossOf = Callable[[Int64, np.random.Generator], Any]


@dataclass(frozen=True, slots=True)
class Options:
    """What a training depends on beside model, images and seed.

    Attributes:
        side: most pixels of a picture's long side; longer ones are made smaller.
        batch: pictures a step.
        width: channels of the first layer; deeper ones have up to 8 times as many.
        rate: highest learning rate.
    """

    side: int
    batch: int
    width: int
    rate: float


@dataclass(frozen=True, slots=True)
class Running:
    """Where a network runs: device of torch, and threads of the processor."""

    device: str
    threads: int


class Model(Protocol):
    """What is taught, and how its answers are judged. Picklable.

    Attributes:
        name: behind ``torch:``.
        version: raised whenever the same options would train another network.
        epochs: passes over the training images where nobody says.
        multiple: sides of the network's input are multiples of it.
        usual: the options where nobody says.
        decides: the metrics by which a verdict falls.
    """

    name: str
    version: int
    epochs: int
    multiple: int
    usual: Options
    decides: tuple[str, ...]

    def refuse(self, split: Split) -> None:
        """Refuse a split that it cannot learn from, or be judged on.

        Raises:
            VisleakError: one line, with what to do.
        """
        ...

    def notes(self, split: Split) -> Iterator[str]:
        """Yield what is worth saying about a split."""
        ...

    def network(self, split: Split, width: int) -> Any:
        """Return the network with fresh weights, drawn from torch's own generator."""
        ...

    def seen(self, lesson: Lesson) -> Int64:
        """Return which of a lesson's training images can be learnt from, ascending."""
        ...

    def learner(self, network: Any, lesson: Lesson, seen: Int64, here: Here) -> LossOf:
        """Return what gives the loss of some of the images that are seen."""
        ...

    def said(self, network: Any, rows: Int64, here: Here) -> Any:
        """Return what the network says of some readable pictures."""
        ...

    def judged(self, said: Any, split: Split, here: Here) -> Outcome:
        """Return the metrics of what was said of all readable pictures of the test set."""
        ...


@dataclass(frozen=True)
class Here:
    """The pictures, and the device of torch that they go to."""

    pictures: Pictures
    device: str

    def lesson(self, lesson: Lesson) -> Int64:
        """Return the row of each of a lesson's training images."""
        return self.pictures.lesson(lesson.draw)

    def tensors(self, rows: Int64) -> Iterator[tuple[Int64, Any]]:
        """Yield rows and their pictures, ``float32`` (k, 3, height, width) from 0 to 255."""
        import torch

        content = self.pictures.mapped()
        for start in range(0, len(rows), GLANCE):
            mine = rows[start : start + GLANCE]
            pixels = torch.from_numpy(self.pictures.on_canvas(content, mine)).to(self.device)
            maps = pixels.permute(0, 3, 1, 2).float()
            yield mine, maps.contiguous(memory_format=torch.channels_last)


class NetworkTrainer:
    """Trains a model; see :class:`visleak.dlede.lesson.Trainer`."""

    lower: Sequence[str] = ()

    def __init__(self, name: str, model: Model, options: Options, running: Running) -> None:
        self.name, self.model = name, model
        self.decides: Sequence[str] = model.decides
        self.options, self.running = options, running

    def about(self) -> Mapping[str, Any]:
        """Return model and options.

        Device, threads and torch's version, which only change how numbers are rounded, stand in
        each outcome instead: a curve may go on elsewhere.
        """
        model = self.model
        named = {"model": model.name, "version": model.version, "epochs": model.epochs}
        return named | asdict(self.options)

    def ready(self, split: Split, folder: Path, progress: Progress) -> ReadyNetwork:
        """Prepare the pictures, and time a few steps.

        Raises:
            VisleakError: the model cannot learn from the split, or no picture can be read.
        """
        self.model.refuse(split)
        side, multiple = self.options.side, self.model.multiple
        pictures = prepare_pictures(split, side, multiple, folder, progress)
        ready = ReadyNetwork(self.model, self.options, self.running, pictures, ())
        notes = (*_unreadable(pictures), *self.model.notes(split))
        return replace(ready.timed(split), notes=notes)


def _unreadable(pictures: Pictures) -> Iterator[str]:
    """Yield a sentence where pictures could not be read."""
    if pictures.unreadable:
        name, first, why = pictures.unreadable[0]
        yield (
            f"{len(pictures.unreadable):,} pictures could not be read, such as {first!r} of set"
            f" {name!r} ({why}); they are left out of training, and nothing is found in those of"
            " the test set"
        )


@dataclass(frozen=True)
class ReadyNetwork:
    """A model that has seen the split; see :class:`visleak.dlede.lesson.Ready`.

    Attributes:
        model, options, running: what is taught, and how.
        pictures: of both sets.
        notes: what is worth saying.
        learning, judging: seconds a picture and pass, and seconds a test picture, as measured.
    """

    model: Model
    options: Options
    running: Running
    pictures: Pictures
    notes: tuple[str, ...]
    learning: float = 0.0
    judging: float = 0.0

    def seconds(self, images: int, epochs: int | None) -> float:
        """Return what a training on so many images takes, by what a few steps took."""
        learning = images * (epochs or self.model.epochs) * self.learning
        return learning + len(self.pictures.test) * self.judging

    def train(self, lesson: Lesson, folder: Path) -> Outcome:
        """Train and evaluate; what could not be read stands in the log."""
        import torch

        from visleak.dlede.trainers.learning import exactly

        here, epochs = self.here, lesson.epochs or self.model.epochs
        with _log(folder / "log.txt") as say, exactly(self.running.threads):
            for name, each, why in self.pictures.unreadable:
                say(f"cannot be read: {each!r} of set {name!r} ({why})")
            network, loss, count = self._taught(lesson, epochs, say)
            network.eval()
            test = self.pictures.test
            said = self.model.said(network, test[self.pictures.readable[test]], here)
            outcome = self.model.judged(said, lesson.split, here)
            say(", ".join(f"{name} {value:.4f}" for name, value in outcome.metrics.items()))
        about = {
            "epochs": epochs,
            "pictures": count,
            "loss": loss,
            "unreadable": len(self.pictures.unreadable),
            "device": self.running.device,
            "threads": self.running.threads,
            "torch": torch.__version__,
        }
        return replace(outcome, about=about | dict(outcome.about))

    def timed(self, split: Split) -> ReadyNetwork:
        """Return the same, with what a picture costs."""
        from visleak.dlede.trainers.learning import exactly

        readable = np.flatnonzero(self.pictures.readable[: self.pictures.train])
        kept = readable[: self.options.batch].astype(np.int64)
        lesson = Lesson(split, Draw(kept, np.empty(0, np.int64)), 0, 1, 0)
        test = self.pictures.test[self.pictures.readable[self.pictures.test]][:GLANCE]
        with exactly(self.running.threads):
            network, _, count = self._taught(lesson, 1, _silent)
            start = time.perf_counter()
            network, _, count = self._taught(lesson, TIMED, _silent)
            learning = (time.perf_counter() - start) / (TIMED * max(1, count))
            network.eval()
            self.model.said(network, test, self.here)
            start = time.perf_counter()
            self.model.said(network, test, self.here)
            judging = (time.perf_counter() - start) / len(test)
        return replace(self, learning=learning, judging=judging)

    @property
    def here(self) -> Here:
        """The pictures and the device."""
        return Here(self.pictures, self.running.device)

    def _taught(
        self, lesson: Lesson, epochs: int, say: Callable[[str], None]
    ) -> tuple[Any, float, int]:
        """Return the taught network, its last loss, and how many pictures it has seen."""
        from visleak.dlede.trainers.learning import Schedule, built, learn

        seen = self.model.seen(lesson)
        seen = seen[self.pictures.readable[self.here.lesson(lesson)[seen]]]
        if not len(seen):
            raise TrainingFailed("none of its training images can be learnt from")
        network = built(
            lambda: self.model.network(lesson.split, self.options.width),
            lesson.seed,
            self.running.device,
        )
        network.train()
        loss_of = self.model.learner(network, lesson, seen, self.here)
        schedule = Schedule(epochs, self.options.batch, self.options.rate, lesson.seed)
        losses = learn(network, len(seen), schedule, loss_of, say)
        return network, losses[-1], len(seen)


@contextmanager
def _log(path: Path) -> Iterator[Callable[[str], None]]:
    """Yield what writes lines with their time to a log."""
    start = time.monotonic()
    with path.open("a", encoding="utf-8") as file:

        def say(text: str) -> None:
            file.write(f"{time.monotonic() - start:8.1f} s  {text}\n")
            file.flush()

        yield say


def _silent(text: str) -> None:
    """Say nothing."""
