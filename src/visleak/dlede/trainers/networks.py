"""``torch:MODEL[?OPTION=VALUE&...]``: bundled networks, trained from scratch by torch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from visleak.dlede.draw.split import Draw, Split
from visleak.dlede.train.runs import LOG
from visleak.dlede.train.trainer import Outcome, TrainingFailed, TrainingTask
from visleak.dlede.trainers import TrainerRequest
from visleak.dlede.trainers.pixels import DecodedImages, decode_images
from visleak.encoders.libraries import library
from visleak.encoders.request import Request, parse
from visleak.errors import UsageError
from visleak.pipeline.context import Progress
from visleak.records import Int64
from visleak.search.streaming_screen import torch_device

#: Name of a model -> its class, and the libraries that it needs.
MODELS: Final = {
    "detector": ("visleak.dlede.trainers.detector:Detector", ("torch", "pycocotools.coco")),
    "classifier": ("visleak.dlede.trainers.classifier:Classifier", ("torch",)),
}

#: Least and most of each integer option; it is a multiple of the third. The widths fill whole
#: vectors: with 8 channels, torch 2.13 (oneDNN 3.12) crashes in the backward pass of the classifier
#: in the layout of channels last.
LIMITS: Final = {"side": (16, 2048, 1), "batch": (2, 1024, 1), "width": (16, 256, 16)}

#: Images per call without gradients, and epochs that are timed.
BATCH: Final = 32
TIMED: Final = 3

#: Share of the steps with a rising learning rate; in the rest it falls along a cosine.
RISE: Final = 0.15

#: Decay of the weights; one-dimensional ones (biases, normalisation) are excluded.
WEIGHT_DECAY: Final = 0.01

#: Kinds of random numbers, distinct for each use.
WEIGHTS, ORDER, CHANGES = 0, 1, 2

#: The loss of some images, given by their numbers in the task; random changes are drawn.
LossOf = Callable[[Int64, np.random.Generator], Any]


@dataclass(frozen=True, slots=True)
class Options:
    """What a training run depends on in addition to model, images and seed.

    Attributes:
        side: most pixels of an image's long side; longer ones are made smaller.
        batch: images per step, about: an epoch is divided into steps of nearly the same size.
        width: channels of the first layer; deeper ones have up to 8 times as many.
        rate: highest learning rate.
    """

    side: int
    batch: int
    width: int
    rate: float


class Model(Protocol):
    """A network, and the evaluation of its predictions. Picklable.

    Attributes:
        name: after ``torch:``.
        version: raised whenever the same options would train another network.
        epochs: default passes over the training images.
        multiple: sides of the network's input are multiples of it.
        usual: the default options.
        decides: the deciding metrics.
    """

    name: str
    version: int
    epochs: int
    multiple: int
    usual: Options
    decides: tuple[str, ...]

    def check(self, split: Split) -> None:
        """Refuse a split that it cannot learn from, or be evaluated on.

        Raises:
            VisleakError: one line, with what to do.
        """
        ...

    def notes(self, split: Split) -> Iterator[str]:
        """Yield notes on a split."""
        ...

    def network(self, split: Split, width: int) -> Any:
        """Return the network with initial weights from torch's own generator."""
        ...

    def usable(self, task: TrainingTask) -> Int64:
        """Return the training images of a task that can be learned from, ascending."""
        ...

    def loss(self, network: Any, task: TrainingTask, usable: Int64, data: ImageBatches) -> LossOf:
        """Return the loss function of the usable images."""
        ...

    def predict(self, network: Any, rows: Int64, data: ImageBatches) -> Any:
        """Return the network's predictions for some readable images."""
        ...

    def evaluate(self, predictions: Any, split: Split, data: ImageBatches) -> Outcome:
        """Return the metrics of the predictions for all readable test images."""
        ...


@dataclass(frozen=True)
class ImageBatches:
    """Decoded images on a device of torch."""

    images: DecodedImages
    device: str

    def tensors(self, rows: Int64) -> Iterator[tuple[Int64, Any]]:
        """Yield rows and their images, ``float32`` (k, 3, height, width) from 0 to 255."""
        import torch

        content = self.images.mapped()
        for start in range(0, len(rows), BATCH):
            mine = rows[start : start + BATCH]
            pixels = torch.from_numpy(self.images.on_canvas(content, mine)).to(self.device)
            maps = pixels.permute(0, 3, 1, 2).float()
            yield mine, maps.contiguous(memory_format=torch.channels_last)


class NetworkTrainer:
    """Trains a model; see :class:`visleak.dlede.train.trainer.Trainer`.

    Args:
        name: on the command line.
        model, options: what is trained.
        device: of torch.
        threads: of the processor.
    """

    lower: Sequence[str] = ()

    def __init__(
        self, name: str, model: Model, options: Options, device: str, threads: int
    ) -> None:
        self.name, self.model, self.options = name, model, options
        self.device, self.threads = device, threads
        self.decides: Sequence[str] = model.decides

    def about(self) -> Mapping[str, Any]:
        """Return model and options.

        Device, threads and torch's version, which only change the rounding, are in each outcome
        instead: a curve may be resumed on another machine.
        """
        model = self.model
        named = {"model": model.name, "version": model.version, "epochs": model.epochs}
        return named | asdict(self.options)

    def prepare(self, split: Split, folder: Path, progress: Progress) -> PreparedNetwork:
        """Decode the images, and time a few steps.

        Raises:
            VisleakError: the model cannot learn from the split, or no image can be read.
        """
        self.model.check(split)
        images = decode_images(split, self.options.side, self.model.multiple, folder, progress)
        data = ImageBatches(images, self.device)
        prepared = PreparedNetwork(self.model, self.options, data, self.threads)
        notes = (*images.notes(), *self.model.notes(split))
        return replace(prepared.timed(split), notes=notes)


@dataclass(frozen=True)
class PreparedNetwork:
    """A model prepared for a split; see :class:`visleak.dlede.train.trainer.PreparedTrainer`.

    Attributes:
        model, options, threads: as of the trainer.
        data: images of both sets.
        notes: for the reader of the result.
        learning, evaluating: seconds per image and epoch, and per test image, as measured.
    """

    model: Model
    options: Options
    data: ImageBatches
    threads: int
    notes: tuple[str, ...] = ()
    learning: float = 0.0
    evaluating: float = 0.0

    def seconds(self, images: int, epochs: int | None) -> float:
        """Return the estimated time of a training run on a number of images."""
        learning = images * (epochs or self.model.epochs) * self.learning
        return learning + len(self.data.images.test) * self.evaluating

    def train(self, task: TrainingTask, folder: Path) -> Outcome:
        """Train and evaluate; unreadable images are listed in the log."""
        import torch

        from visleak.training.loop import deterministic

        images, epochs = self.data.images, task.epochs or self.model.epochs
        with _log(folder / LOG) as log, deterministic(self.threads):
            for name, each, why in images.unreadable:
                log(f"unreadable: {each!r} of set {name!r} ({why})")
            network, loss, count = self._trained(task, epochs, log)
            predictions = self.model.predict(network, images.test[images.readable_test], self.data)
            outcome = self.model.evaluate(predictions, task.split, self.data)
            log(", ".join(f"{name} {value:.4f}" for name, value in outcome.metrics.items()))
        about = {
            "epochs": epochs,
            "pictures": count,
            "loss": loss,
            "unreadable": len(images.unreadable),
            "device": self.data.device,
            "threads": self.threads,
            "torch": torch.__version__,
        }
        return replace(outcome, about=about | dict(outcome.about))

    def timed(self, split: Split) -> PreparedNetwork:
        """Return the same with the measured times per image."""
        from visleak.training.loop import deterministic

        images = self.data.images
        readable = np.flatnonzero(images.readable[: images.train])
        kept = readable[: self.options.batch].astype(np.int64)
        task = TrainingTask(split, Draw(kept, np.empty(0, np.int64)), 0, 1, 0)
        test = images.test[images.readable_test][:BATCH]
        with deterministic(self.threads):
            self._trained(task, 1, _silent)
            start = time.perf_counter()
            network, _, count = self._trained(task, TIMED, _silent)
            learning = (time.perf_counter() - start) / (TIMED * max(1, count))
            self.model.predict(network, test, self.data)
            start = time.perf_counter()
            self.model.predict(network, test, self.data)
            evaluating = (time.perf_counter() - start) / len(test)
        return replace(self, learning=learning, evaluating=evaluating)

    def _trained(
        self, task: TrainingTask, epochs: int, log: Callable[[str], None]
    ) -> tuple[Any, float, int]:
        """Return the trained network for inference, its last loss, and its number of images."""
        from visleak.training.loop import Diverged, Loop, seeded

        data, seed = self.data, task.seed
        usable = self.model.usable(task)
        usable = usable[data.images.readable[data.images.rows(task.draw)[usable]]]
        if not len(usable):
            raise TrainingFailed("none of its training images can be learned from")
        with seeded(int(_numbers(seed, WEIGHTS).integers(2**62))):
            network = self.model.network(task.split, self.options.width)
        network = _moved(network, data.device)
        network.train()
        loss_of = self.model.loss(network, task, usable, data)
        steps = max(1, round(len(usable) / self.options.batch))

        def on_epoch() -> None:
            log(f"epoch {len(loop.losses)} of {epochs}: loss {loop.losses[-1]:.4f}")

        loop = Loop(
            _optimizer(network, self.options.rate),
            epochs,
            lambda epoch: np.array_split(
                _numbers(seed, ORDER, epoch).permutation(len(usable)), steps
            ),
            lambda step: rate_at(step, steps * epochs, self.options.rate),
            lambda chosen, step: loss_of(chosen, _numbers(seed, CHANGES, step)),
            on_epoch=on_epoch,
        )
        try:
            losses = loop.run()
        except Diverged as error:
            raise TrainingFailed(
                f"training diverged in epoch {error} (loss is NaN); take a smaller rate="
            ) from error
        network.eval()
        return network, losses[-1], len(usable)


def _numbers(*seed: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed))


def _moved(network: Any, device: str) -> Any:
    import torch

    return network.to(device=device, memory_format=torch.channels_last)


def _optimizer(network: Any, rate: float) -> Any:
    import torch

    weights = [each for each in network.parameters() if each.ndim > 1]
    others = [each for each in network.parameters() if each.ndim <= 1]
    groups = [{"params": weights}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, weight_decay=WEIGHT_DECAY)


def rate_at(step: int, steps: int, rate: float) -> float:
    """Return the learning rate of a step: one cycle (Smith & Topin 2018), without restart.

    >>> [round(rate_at(step, 100, 1.0), 2) for step in (0, 7, 15, 57, 99)]
    [0.06, 0.5, 1.0, 0.51, 0.0]
    """
    rise = RISE * steps
    if step < rise:
        return rate * (step + 1) / (math.floor(rise) + 1)
    return rate * 0.5 * (1 + math.cos(math.pi * (step - rise) / (steps - rise)))


@contextmanager
def _log(path: Path) -> Iterator[Callable[[str], None]]:
    """Give a function that writes lines with their time to a log."""
    start = time.monotonic()
    with path.open("a", encoding="utf-8") as file:

        def log(text: str) -> None:
            file.write(f"{time.monotonic() - start:8.1f} s  {text}\n")
            file.flush()

        yield log


def _silent(text: str) -> None:
    """Log nothing."""


# -- options --------------------------------------------------------------------------------------


def torch_trainer(request: TrainerRequest) -> NetworkTrainer:
    """Return the trainer of a request such as ``torch:detector?side=320``.

    Raises:
        UsageError: no such model, option, value or device.
        MissingExtra: torch is not installed.
    """
    parsed = parse(request.argument, "trainer")
    if parsed.name not in MODELS:
        models = " or ".join(f"torch:{name}" for name in MODELS)
        raise UsageError(f"the trainer torch needs a model: {models}; got {request.text!r}")
    (module, _, name), libraries = MODELS[parsed.name][0].partition(":"), MODELS[parsed.name][1]
    options = replace(parsed, text=request.text, name=f"torch:{parsed.name}")
    options.no_argument()
    options.knows(*LIMITS, "rate")
    for needed in libraries:
        library(needed, "torch", options.called)
    model: Model = getattr(import_module(module), name)()
    usual = model.usual
    chosen = Options(
        _integer(options, "side", usual.side),
        _integer(options, "batch", usual.batch),
        _integer(options, "width", usual.width),
        _rate(options, usual.rate),
    )
    device = torch_device(request.device) or "cpu"
    return NetworkTrainer(request.text, model, chosen, device, request.threads)


def _integer(request: Request, option: str, usual: int) -> int:
    least, most, multiple = LIMITS[option]
    value = request.options.get(option, str(usual))
    # int() refuses a thousand digits in its own words
    whole = value.isascii() and value.isdecimal() and len(value) < 10
    if not whole or not least <= int(value) <= most or int(value) % multiple:
        kind = "whole number" if multiple == 1 else f"multiple of {multiple}"
        raise request.refused(option, f"a {kind} from {least} to {most:,}")
    return int(value)


def _rate(request: Request, usual: float) -> float:
    try:
        value = float(request.options.get("rate", usual))
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise request.refused("rate", f"a number above 0 and up to 1, such as {usual:g}")
    return value
