"""``torch:MODEL[?OPTION=VALUE&...]``: bundled networks, trained from scratch by torch."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from visleak.auditing import workers_for
from visleak.devices import torch_device
from visleak.dlede.draw import Draw, Split
from visleak.dlede.train import LOG, Outcome, TrainingFailed, TrainingTask
from visleak.dlede.trainers import TrainerRequest
from visleak.encoders.request import parse
from visleak.errors import UsageError, VisleakError
from visleak.lazy import library, load
from visleak.pipeline.context import GrowingColumn, RunContext
from visleak.progress import Progress
from visleak.quantities import counted
from visleak.records import Bool, Bytes8, Int64
from visleak.training.data import Decoded, decoded

if TYPE_CHECKING:
    import torch
    from torch import nn

#: Name of a model -> its class, and the libraries that it needs.
MODELS: Final = {
    "detector": ("visleak.dlede.trainers.torch_networks:Detector", ("torch", "pycocotools.coco")),
    "classifier": ("visleak.dlede.trainers.torch_networks:Classifier", ("torch",)),
}
#: Least and most of each integer option; it is a multiple of the third. The widths fill whole
#: vectors: with 8 channels, torch 2.13 (oneDNN 3.12) crashes in the backward pass of the classifier
#: in the layout of channels last.
LIMITS: Final = {"side": (16, 2048, 1), "batch": (2, 1024, 1), "width": (16, 256, 16)}
BATCH: Final = 32  # images per call without gradients, and epochs that are timed
TIMED: Final = 3
#: Share of the steps with a rising learning rate; in the rest it falls along a cosine.
RISE: Final = 0.15
#: Decay of the weights; one-dimensional ones (biases, normalisation) are excluded.
WEIGHT_DECAY: Final = 0.01
WEIGHTS, ORDER, CHANGES = 0, 1, 2  # kinds of random numbers, distinct for each use

#: The loss of some images, given by their numbers in the task; random changes are drawn.
LossOf = Callable[[Int64, np.random.Generator], "torch.Tensor"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a training run depends on in addition to model, images and seed."""

    side: int  # most pixels of an image's long side; longer ones are made smaller
    batch: int  # images per step, about: an epoch is divided into steps of nearly the same size
    width: int  # channels of the first layer; deeper ones have up to 8 times as many
    rate: float  # highest learning rate


class Model(Protocol):
    """A network, and the evaluation of its predictions. Picklable."""

    name: str  # after ``torch:``
    version: int  # raised whenever the same options would train another network
    epochs: int  # default passes over the training images
    multiple: int  # sides of the network's input are multiples of it
    usual: Options
    decides: tuple[str, ...]

    def check(self, split: Split) -> None:
        """Refuse a split that it cannot learn from, or be evaluated on."""

    def notes(self, split: Split) -> Iterator[str]:
        """Yield notes on a split."""

    def network(self, split: Split, width: int) -> nn.Module:
        """Return the network with initial weights from torch's own generator."""

    def usable(self, task: TrainingTask) -> Int64:
        """Return the training images of a task that can be learned from, ascending."""

    def loss(
        self, network: nn.Module, task: TrainingTask, usable: Int64, images: DecodedImages
    ) -> LossOf:
        """Return the loss function of the usable images."""

    def predict(self, network: nn.Module, rows: Int64, images: DecodedImages) -> object:
        """Return the network's predictions for some readable images."""

    def evaluate(self, network: nn.Module, split: Split, images: DecodedImages) -> Outcome:
        """Return the metrics of the predictions for all readable test images."""


class NetworkTrainer:
    """Trains a model; see :class:`visleak.dlede.train.Trainer`."""

    lower: Sequence[str] = ()

    def __init__(
        self, name: str, model: Model, options: Options, device: str, threads: int
    ) -> None:
        self.name, self.model, self.options = name, model, options
        self.device, self.threads = device, threads
        self.decides: Sequence[str] = model.decides

    def about(self) -> Mapping[str, object]:
        """Return model and options.

        Device, threads and torch's version only change the rounding; each outcome has them.
        """
        model = self.model
        named = {"model": model.name, "version": model.version, "epochs": model.epochs}
        return named | asdict(self.options)

    def prepare(self, split: Split, folder: Path, progress: Progress) -> PreparedNetwork:
        """Decode the images, and time a few steps."""
        self.model.check(split)
        decoded = decode_images(split, self.options.side, self.model.multiple, folder, progress)
        images = replace(decoded, device=self.device)
        notes = (*images.notes(), *self.model.notes(split))
        return PreparedNetwork(self.model, self.options, images, self.threads, notes).timed(split)


@dataclass(frozen=True)
class PreparedNetwork:
    """A model prepared for a split; see :class:`visleak.dlede.train.PreparedTrainer`."""

    model: Model
    options: Options
    images: DecodedImages
    threads: int
    notes: tuple[str, ...] = ()  # for the reader of the result
    learning: float = 0.0  # measured seconds per image and epoch
    evaluating: float = 0.0  # per test image

    def seconds(self, images: int, epochs: int | None) -> float:
        """Return the estimated time of a training run on a number of images."""
        learning = images * (epochs or self.model.epochs) * self.learning
        return learning + len(self.images.test) * self.evaluating

    def train(self, task: TrainingTask, folder: Path) -> Outcome:
        """Train and evaluate; unreadable images are listed in the log."""
        import torch

        from visleak.training.networks import deterministic

        images, epochs, start = self.images, task.epochs or self.model.epochs, time.monotonic()
        with (folder / LOG).open("a", encoding="utf-8") as file, deterministic(self.threads):

            def log(text: str) -> None:
                print(f"{time.monotonic() - start:8.1f} s  {text}", file=file, flush=True)

            for name, each, why in images.unreadable:
                log(f"unreadable: {each!r} of set {name!r} ({why})")
            network, loss, count = self._trained(task, epochs, log)
            outcome = self.model.evaluate(network, task.split, images)
            log(", ".join(f"{name} {value:.4f}" for name, value in outcome.metrics.items()))
        about = {
            "epochs": epochs,
            "images": count,
            "loss": loss,
            "unreadable": len(images.unreadable),
            "device": images.device,
            "threads": self.threads,
            "torch": torch.__version__,
        }
        return replace(outcome, about=about | dict(outcome.about))

    def timed(self, split: Split) -> PreparedNetwork:
        """Return the same with the measured times per image."""
        from visleak.training.networks import deterministic

        images = self.images
        readable = np.flatnonzero(images.readable[: images.train])
        kept = readable[: self.options.batch].astype(np.int64)
        task = TrainingTask(split, Draw(kept, np.empty(0, np.int64)), 0, 1, 0)
        test = images.readable_test[:BATCH]
        with deterministic(self.threads):
            self._trained(task, 1, lambda text: None)
            start = time.perf_counter()
            network, _, count = self._trained(task, TIMED, lambda text: None)
            learning = (time.perf_counter() - start) / (TIMED * max(1, count))
            self.model.predict(network, test, images)
            start = time.perf_counter()
            self.model.predict(network, test, images)
            evaluating = (time.perf_counter() - start) / len(test)
        return replace(self, learning=learning, evaluating=evaluating)

    def _trained(
        self, task: TrainingTask, epochs: int, log: Callable[[str], None]
    ) -> tuple[nn.Module, float, int]:
        """Return the trained network for inference, its last loss, and its number of images."""
        import torch

        from visleak.training.networks import Diverged, Loop, seeded

        images, seed, rate = self.images, task.seed, self.options.rate
        usable = self.model.usable(task)
        usable = usable[images.readable[images.rows(task.draw)[usable]]]
        if not len(usable):
            raise TrainingFailed("none of its training images can be learned from")
        with seeded(int(_numbers(seed, WEIGHTS).integers(2**62))):
            network = self.model.network(task.split, self.options.width)
        network = network.to(device=images.device, memory_format=torch.channels_last)
        network.train()
        decayed, others = (
            [each for each in network.parameters() if (each.ndim > 1) == decays]
            for decays in (True, False)
        )
        groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
        loss_of = self.model.loss(network, task, usable, images)
        steps = max(1, round(len(usable) / self.options.batch))
        loop = Loop(
            torch.optim.AdamW(groups, lr=rate, weight_decay=WEIGHT_DECAY),
            epochs,
            lambda epoch: np.array_split(
                _numbers(seed, ORDER, epoch).permutation(len(usable)), steps
            ),
            lambda step: rate_at(step, steps * epochs, rate),
            lambda chosen, step: loss_of(chosen, _numbers(seed, CHANGES, step)),
        )
        loop.on_epoch = lambda: log(
            f"epoch {len(loop.losses)} of {epochs}: loss {loop.losses[-1]:.4f}"
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


def rate_at(step: int, steps: int, rate: float) -> float:
    """Return the learning rate of a step: one cycle (Smith & Topin 2018), without restart.

    >>> [round(rate_at(step, 100, 1.0), 2) for step in (0, 7, 15, 57, 99)]
    [0.06, 0.5, 1.0, 0.51, 0.0]
    """
    rise = RISE * steps
    if step < rise:
        return rate * (step + 1) / (math.floor(rise) + 1)
    return rate * 0.5 * (1 + math.cos(math.pi * (step - rise) / (steps - rise)))


def torch_trainer(request: TrainerRequest) -> NetworkTrainer:
    """Return the trainer of a request such as ``torch:detector?side=320``."""
    parsed = parse(request.argument, "trainer")
    if parsed.name not in MODELS:
        models = " or ".join(f"torch:{name}" for name in MODELS)
        raise UsageError(f"the trainer torch needs a model: {models}; got {request.text!r}")
    place, libraries = MODELS[parsed.name]
    options = replace(parsed, text=request.text, name=f"torch:{parsed.name}")
    options.no_argument()
    options.allow_only(*LIMITS, "rate")
    for needed in libraries:
        library(needed, "torch", options.called)
    model: Model = load(place)()
    usual = model.usual
    try:
        rate = float(options.options.get("rate", usual.rate))
    except ValueError:
        rate = math.nan
    if not 0 < rate <= 1:
        raise options.refused("rate", f"a number above 0 and up to 1, such as {usual.rate:g}")
    chosen = Options(
        **{name: options.number(name, getattr(usual, name), *LIMITS[name]) for name in LIMITS},
        rate=rate,
    )
    device = torch_device(request.device) or "cpu"
    return NetworkTrainer(request.text, model, chosen, device, request.threads)


# -- decoded images --------------------------------------------------------------------------------

GREY: Final = 114  # grey value around an image that is smaller than the canvas
CHUNK: Final = 64  # images per task
#: Pillow's number of the bilinear filter, which averages when an image becomes smaller.
BILINEAR: Final = 2


@dataclass(frozen=True)
class DecodedImages:
    """The images of a split: training set, then test set; unreadable ones have no size."""

    path: Path  # of the file: the pixels of one image after the other, RGB
    starts: Int64  # (n + 1,): where in the file each begins
    sizes: Int64  # (n, 2): height and width as decoded
    originals: Int64  # (n, 2): height and width of the upright image
    canvas: tuple[int, int]  # height and width that hold every image
    train: int  # number of rows of the training set
    unreadable: tuple[tuple[str, str, str], ...]  # set, id and reason of each unreadable image
    device: str = "cpu"  # of torch

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def readable(self) -> Bool:
        """Which could be read, (n,)."""
        return np.asarray(self.sizes[:, 0] > 0)

    @property
    def test(self) -> Int64:
        """The rows of the test set."""
        return np.arange(self.train, len(self), dtype=np.int64)

    @property
    def readable_test(self) -> Int64:
        """The rows of the test images that could be read."""
        return self.train + np.flatnonzero(self.readable[self.train :])

    def tensors(self, rows: Int64) -> Iterator[tuple[Int64, torch.Tensor]]:
        """Yield rows and their images, ``float32`` (k, 3, height, width) from 0 to 255."""
        import torch

        content = self.mapped()
        for start in range(0, len(rows), BATCH):
            mine = rows[start : start + BATCH]
            pixels = torch.from_numpy(self.on_canvas(content, mine)).to(self.device)
            maps = pixels.permute(0, 3, 1, 2).float()
            yield mine, maps.contiguous(memory_format=torch.channels_last)

    def rows(self, draw: Draw) -> Int64:
        """Return the rows of the training images of a draw, in the task's order."""
        return np.concatenate([draw.kept, draw.leaked + self.train])

    def mapped(self) -> Bytes8:
        """Return the file's content, memory-mapped and read-only."""
        return np.memmap(self.path, np.uint8, mode="r", shape=(int(self.starts[-1]),))

    def on_canvas(self, content: Bytes8, rows: Int64) -> Bytes8:
        """Return images in the upper left corner of a grey canvas, ``uint8`` (k, h, w, 3)."""
        made = np.full((len(rows), *self.canvas, 3), GREY, np.uint8)
        for canvas, row in zip(made, rows, strict=True):
            height, width = self.sizes[row]
            pixels = content[self.starts[row] : self.starts[row + 1]]
            canvas[:height, :width] = pixels.reshape(height, width, 3)
        return made

    def notes(self) -> Iterator[str]:
        """Yield a note if images could not be read."""
        if self.unreadable:
            name, first, why = self.unreadable[0]
            yield (
                f"{counted(len(self.unreadable), 'image')} could not be read, such as {first!r} of"
                f" set {name!r} ({why}); unreadable images are excluded from training, and nothing"
                " is found in those of the test set"
            )


def decode_images(
    split: Split, side: int, multiple: int, folder: Path, progress: Progress
) -> DecodedImages:
    """Decode the images of both sets; none is enlarged."""
    sets = (split.train, split.test)
    for images in sets:
        if not images.has_pixels:
            raise UsageError(
                f"set {images.name!r} has embeddings without images; give the images themselves"
            )
    path, parts, unreadable = folder / "pictures.rgb", list[Decoded](), []
    size_of = partial(reduced_size, side=side)
    with (
        RunContext.at(folder, workers_for(sum(map(len, sets)), None), None, progress) as place,
        GrowingColumn(path, np.uint8) as column,
    ):
        for images in sets:
            row, found = 0, False
            for part in decoded(images, place, size_of, chunk=CHUNK, resample=BILINEAR):
                try:
                    column.append(part.pixels)
                except OSError as error:
                    free = shutil.disk_usage(folder).free
                    raise VisleakError(
                        f"the decoded images cannot be written to {folder} ({error.strerror};"
                        f" {free / 1e9:,.1f} GB are free); take a smaller side=, or write elsewhere"
                    ) from error
                for at, why in part.unreadable:
                    reason = why.reason + (f": {why.detail}" if why.detail else "")
                    unreadable.append((images.name, images.ids[row + at].as_py(), reason))
                row, found = row + len(part.sizes), found or bool(part.sizes.any())
                parts.append(part)
            if not found:
                raise VisleakError(
                    f"set {images.name!r}: none of its {len(images):,} images can be read"
                )
    sizes = np.concatenate([part.sizes for part in parts])
    height, width = (-(-int(most) // multiple) * multiple for most in sizes.max(axis=0))
    return DecodedImages(
        path,
        np.concatenate([[0], np.cumsum(3 * sizes.prod(axis=1))]),
        sizes,
        np.concatenate([part.originals for part in parts]),
        (height, width),
        len(split.train),
        tuple(unreadable),
    )


def reduced_size(height: int, width: int, *, side: int) -> tuple[int, int]:
    """Return height and width of an image whose long side is at most ``side``.

    >>> reduced_size(375, 1242, side=160), reduced_size(96, 128, side=160)
    ((48, 160), (96, 128))
    """
    scale = min(1.0, side / max(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))
