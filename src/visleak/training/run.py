"""Training a network on the images of a set (Barz & Denzler 2020, section 3), resumable."""

from __future__ import annotations

import io
import logging
import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import nn

from visleak.encoders.onnx import OnnxEncoder, Recipe
from visleak.errors import VisleakError, explaining
from visleak.rates import Rate
from visleak.records import Bytes8, Float32, Int64
from visleak.storage import naming, replacing, write_json
from visleak.training.data import TrainingData
from visleak.training.networks import (
    WIDTH,
    Diverged,
    Loop,
    augmented,
    built,
    deterministic,
    generator,
    instance_loss,
)
from visleak.training.plan import MOMENTUM, WEIGHT_DECAY, Plan

#: Called with the work done and in total, in images of full side.
OnProgress = Callable[[int, int], None]

BATCH: Final = 256  # images per call without gradients
#: Kind of the random numbers of views; see :mod:`visleak.training.run` for the others.
VIEWS: Final = 3


@dataclass(frozen=True)
class Scaling:
    """Mean and standard deviation of a set's channels, for values from 0 to 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def of(self, maps: torch.Tensor) -> torch.Tensor:
        """Return the network's input of images (n, 3, h, w) with values from 0 to 255."""
        mean, std = (
            torch.tensor(values, device=maps.device).view(1, 3, 1, 1)
            for values in (self.mean, self.std)
        )
        scaled = (maps / 255 - mean) / std
        return scaled.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class TrainedNetwork:
    """A network that has been trained."""

    plan: Plan  # of the training
    scaling: Scaling  # of its input
    network: nn.Module  # from scaled images to vectors (n, 512), on the CPU or where it was trained
    head: nn.Module  # from vectors to scores of classes, or to compared vectors
    losses: tuple[float, ...]  # mean loss of each epoch

    @property
    def device(self) -> torch.device:
        """The device of torch that it is on."""
        return next(self.network.parameters()).device

    def vectors(
        self,
        images: Bytes8,
        rows: Int64 | None = None,
        progress: OnProgress | None = None,
        view: int | None = None,
    ) -> Float32:
        """Return unit vectors (n, 512) of images, or of views of them, augmented as in training."""
        rows = np.arange(len(images)) if rows is None else rows
        found = np.empty((len(rows), WIDTH), np.float32)
        for part, made in self._vectors(images, rows, view, progress):
            found[part] = torch.nn.functional.normalize(made, dim=1).cpu().numpy()
        return found

    def classes(self, images: Bytes8, rows: Int64, progress: OnProgress | None = None) -> Int64:
        """Return the predicted class of each image, (n,)."""
        found = np.empty(len(rows), np.int64)
        for part, made in self._vectors(images, rows, None, progress):
            found[part] = self.head(made).argmax(1).cpu().numpy()
        return found

    def _vectors(
        self, images: Bytes8, rows: Int64, view: int | None, progress: OnProgress | None
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield slices of the rows and the network's vectors of their images, (k, 512)."""
        self.network.eval()
        self.head.eval()
        with torch.inference_mode():
            for start in range(0, len(rows), BATCH):
                part = slice(start, start + BATCH)
                stored = torch.from_numpy(np.array(images[rows[part]])).to(self.device)
                if view is None:
                    maps = stored.permute(0, 3, 1, 2).float()
                else:
                    draw = generator(self.plan.seed, VIEWS, view, start)
                    maps = augmented(stored, self.plan, self.plan.side, draw)
                yield part, self.network(self.scaling.of(maps))
                if progress is not None:
                    progress(min(start + BATCH, len(rows)), len(rows))


def scaling_of(images: Bytes8, rows: Int64) -> Scaling:
    """Return mean and deviation of the channels of some images, to six decimals."""
    sums, squares, count = np.zeros(3, np.int64), np.zeros(3, np.int64), 0
    for start in range(0, len(rows), BATCH):
        values = np.asarray(images[rows[start : start + BATCH]]).reshape(-1, 3).astype(np.int64)
        sums += values.sum(0)
        squares += (values * values).sum(0)
        count += len(values)
    mean = sums / count
    std = np.sqrt(np.maximum(squares / count - mean * mean, 1.0))
    return Scaling(*(tuple(round(float(value) / 255, 6) for value in each) for each in (mean, std)))


NEIGHBOURS: Final = 20  # neighbours that vote
_AT_ONCE: Final = 1 << 24  # similarities in memory at once


def agreement(found: Int64, true: Int64) -> Rate:
    """Return how many of two columns of class numbers (n,) agree."""
    return Rate.of(int((found == true).sum()), len(true))


def twin_rate(first: Float32, second: Float32) -> Rate:
    """Return how many rows (n, d) have their most similar row of the other matrix in place."""
    found = np.concatenate(
        [similar.argmax(axis=1) for _, similar in _blocks(first, second)] or [np.empty(0, np.int64)]
    )
    return Rate.of(int((found == np.arange(len(first))).sum()), len(first))


def by_neighbours(
    query: Float32, reference: Float32, classes: Int64, neighbours: int = NEIGHBOURS
) -> Int64:
    """Return the class that the most similar references vote for, each by its similarity."""
    count = min(neighbours, len(reference))
    found = np.empty(len(query), np.int64)
    for part, similar in _blocks(query, reference):
        nearest = np.argpartition(-similar, count - 1, axis=1)[:, :count]
        votes = np.zeros((len(similar), int(classes.max()) + 1))
        rows = np.arange(len(similar))[:, None]
        np.add.at(votes, (rows, classes[nearest]), np.take_along_axis(similar, nearest, 1))
        found[part] = votes.argmax(axis=1)
    return found


def _blocks(query: Float32, reference: Float32) -> Iterator[tuple[slice, Float32]]:
    """Yield some query rows at a time with their similarities to all references."""
    size = max(1, _AT_ONCE // max(1, len(reference)))
    for start in range(0, len(query), size):
        part = slice(start, start + size)
        yield part, query[part] @ reference.T


TWINS: Final = 2_000  # images evaluated by two views, and images that may vote, at most
VOTERS: Final = 50_000


def evaluated(
    network: TrainedNetwork, material: TrainingData, progress: OnProgress
) -> dict[str, Rate]:
    """Evaluate a network on images that it did not learn from; empty if none could be held out.

    ``accuracy`` if classes were learned; else ``views``, how often the other view of an image is
    the most similar of all, and, if classes are known, the accuracy of the nearest images.
    """
    data = material.evaluation
    if not len(data.rows):
        return {}
    if material.by_class and data.classes is not None:
        found = network.classes(data.images, data.rows, progress)
        return {"accuracy": agreement(found, data.classes)}
    some = data.rows[:: max(1, len(data.rows) // TWINS)][:TWINS]
    scores = {"views": twin_rate(*(network.vectors(data.images, some, view=n) for n in (0, 1)))}
    if data.classes is None or material.classes is None:
        return scores
    # images whose class is known, spread over the training data, vote
    known = np.flatnonzero(material.classes >= 0)
    voters = known[:: -(-len(known) // VOTERS) or 1]
    if len(voters):
        reference = network.vectors(material.images, material.rows[voters], progress)
        query = network.vectors(data.images, data.rows)
        found = by_neighbours(query, reference, material.classes[voters])
        scores[f"{NEIGHBOURS} nearest"] = agreement(found, data.classes)
    return scores


KIND: Final = "visleak training 1"  # kind of the file, with the version of its layout
#: A checkpoint is written at the end of each epoch and at this interval in seconds, but no more
#: than a tenth of the time is spent on it.
SAVE_SECONDS: Final = 60.0
SAVE_SHARE: Final = 10.0
ORDER, CHANGES = 1, 2  # kinds of random numbers, distinct for each use


def train(
    plan: Plan,
    images: Bytes8,
    rows: Int64,
    classes: Int64 | None,
    *,
    scaling: Scaling,
    key: str,
    checkpoint: Path,
    device: str = "cpu",
    progress: OnProgress = lambda done, total: None,
    notify: Callable[[str], None] = lambda text: None,
) -> TrainedNetwork:
    """Train a network, resuming from a checkpoint of the same key."""
    network, head = (part.to(device) for part in built(plan.network, plan.classes, plan.seed))
    precision = torch.autocast(
        torch.device(device).type, torch.bfloat16, enabled=plan.precision == "bf16"
    )

    def batches(epoch: int) -> Sequence[Int64]:
        order = torch.randperm(len(rows), generator=generator(plan.seed, ORDER, epoch)).numpy()
        starts = range(0, plan.steps_per_epoch * plan.batch, plan.batch)
        return [order[start : start + plan.batch] for start in starts]

    def loss_of(chosen: Int64, step: int) -> torch.Tensor:
        side = plan.side_at(step // plan.steps_per_epoch)
        stored = torch.from_numpy(np.asarray(images[rows[chosen]])).to(device)
        draw = generator(plan.seed, CHANGES, step)
        views = 1 if plan.classes else 2
        maps = torch.cat([augmented(stored, plan, side, draw) for _ in range(views)])
        with precision:
            made = head(network(scaling.of(maps)))
        if classes is None:
            return instance_loss(made)
        known = torch.from_numpy(classes[chosen]).to(device)
        return torch.nn.functional.cross_entropy(made.float(), known)

    optimizer = torch.optim.SGD(
        [*network.parameters(), *head.parameters()],
        lr=plan.rate(0),
        momentum=MOMENTUM,
        nesterov=True,
        weight_decay=WEIGHT_DECAY,
    )
    loop = Loop(optimizer, plan.epochs, batches, plan.rate, loss_of)
    states = Checkpoint(loop, network, head, key, checkpoint)

    def on_step() -> None:
        progress(plan.done(loop.step), plan.work[-1])
        if time.monotonic() - states.saved > SAVE_SECONDS:
            states.save()

    loop.on_step, loop.on_epoch = on_step, states.save
    with deterministic():
        states.resume(plan.steps, notify)
        network.train()
        head.train()
        try:
            loop.run()
        except Diverged as error:
            raise VisleakError(
                f"training diverged in epoch {error} (loss is NaN); take another --seed, or"
                " --precision fp32"
            ) from error
    return TrainedNetwork(plan, scaling, network, head, tuple(loop.losses))


class Checkpoint:
    """The file with the state of a training run between two steps."""

    def __init__(
        self, loop: Loop, network: nn.Module, head: nn.Module, key: str, path: Path
    ) -> None:
        self._loop, self._key, self._path = loop, key, path
        self._parts = {"network": network, "head": head, "optimizer": loop.optimizer}
        self.saved, self._cost = time.monotonic(), 0.0

    def resume(self, steps: int, notify: Callable[[str], None]) -> None:
        """Restore the state in the file, if it is of this training run."""
        if not self._path.exists():
            return
        try:
            with warnings.catch_warnings():
                # about the kind of pickle; a file that is not a checkpoint is refused in any case
                warnings.simplefilter("ignore")
                state = torch.load(self._path, map_location="cpu", weights_only=True)
            if not (isinstance(state, dict) and state["kind"] == KIND):
                raise ValueError("another version wrote it")
            if state["key"] != self._key:
                notify(
                    "the checkpoint next to the output is of another training run: starting over"
                )
                return
            if not (isinstance(state["step"], int) and isinstance(state["losses"], list)):
                raise ValueError("its counts are damaged")
            for name, part in self._parts.items():
                part.load_state_dict(state[name])
            self._loop.step, self._loop.running = state["step"], state["running"]
            self._loop.losses = state["losses"]
        except (
            *(OSError, EOFError, RuntimeError, pickle.UnpicklingError),
            *(ValueError, KeyError, TypeError, AttributeError),
        ) as error:
            # torch's own message is a page long and explains how to load it nevertheless
            program = isinstance(error, pickle.UnpicklingError)
            why = "it may hold a program" if program else "damaged"
            raise VisleakError(
                f"{self._path} is not a checkpoint of visleak ({why}); delete it and train again"
            ) from error
        notify(f"resumed: {self._loop.step:,} of {steps:,} steps were done before")

    def save(self) -> None:
        """Write the state, unless it was written a moment ago."""
        begun, loop = time.monotonic(), self._loop
        if begun - self.saved < SAVE_SHARE * self._cost:
            return
        progress = {"step": loop.step, "losses": loop.losses, "running": loop.running}
        states = {name: part.state_dict() for name, part in self._parts.items()}
        # atomic: after a kill there is this one or the one before
        written = explaining(f"the checkpoint {self._path} cannot be written", OSError)
        with written, replacing(self._path) as beside:
            torch.save({"kind": KIND, "key": self._key, **progress, **states}, beside)
        self.saved = time.monotonic()
        self._cost = self.saved - begun


OPSET: Final = 17  # version of ONNX's operators that are used; onnxruntime 1.17 and newer have it
TOLERANCE: Final = 1e-5  # how far a coordinate from onnxruntime may be off torch's


class Unit(nn.Module):  # type: ignore[misc]
    """A network whose vectors are made unit length."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return unit vectors (n, width)."""
        return nn.functional.normalize(self.network(pixels), dim=1)


def recipe_of(network: TrainedNetwork) -> Recipe:
    """Return how images are prepared for a network, whose vectors the encoder normalises again."""
    side, scaling = network.plan.side, network.scaling
    return Recipe(size=(side, side), mean=scaling.mean, std=scaling.std, input="pixels")


def recipe_path(model: Path) -> Path:
    """Return the path of the JSON of an ONNX file."""
    return model.with_name(f"{model.name}.json")


def onnx_bytes(trained: TrainedNetwork) -> bytes:
    """Return the network as an ONNX file: from images (n, 3, side, side) to unit vectors."""
    side = trained.plan.side
    network = trained.network.to("cpu").eval()
    file = io.BytesIO()
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            # the exporter that needs no more than torch and writes one file is on its way out
            warnings.simplefilter("ignore")
            torch.onnx.export(
                Unit(network).eval(),
                (torch.zeros(2, 3, side, side),),
                file,
                dynamo=False,
                opset_version=OPSET,
                input_names=["pixels"],
                output_names=["vectors"],
                dynamic_axes={"pixels": {0: "pictures"}, "vectors": {0: "pictures"}},
            )
    finally:
        quiet.setLevel(level)
    return file.getvalue()


def write_model(network: TrainedNetwork, out: Path, about: Mapping[str, object]) -> None:
    """Write the ONNX file and its JSON, the JSON last; neither is left without the other."""
    made = onnx_bytes(network)
    recipe = recipe_path(out)
    try:
        with replacing(out) as beside:
            beside.write_bytes(made)
            recipe.unlink(missing_ok=True)
        write_json(recipe, {**recipe_of(network).as_dict(), "about": dict(about)})
    except OSError as error:
        # an earlier model that was not touched has its JSON
        if not recipe.exists():
            out.unlink(missing_ok=True)
        raise VisleakError(f"{out} cannot be written ({error.strerror or error})") from error


def deviation(network: TrainedNetwork, images: Bytes8, folder: Path) -> float | None:
    """Return the largest difference between onnxruntime's vectors and torch's."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return None
    path = folder / "compared.onnx"
    with naming(path):
        path.write_bytes(onnx_bytes(network))
    encoder = OnnxEncoder("compared", path, recipe_of(network), device="cpu")
    theirs = encoder.forward(list(np.asarray(images)))
    path.unlink()
    ours = network.vectors(images)
    usable = np.isfinite(theirs).all(1)
    worst = float(np.abs(theirs[usable] - ours[usable]).max(initial=0.0))
    if worst > TOLERANCE:
        raise VisleakError(
            f"the ONNX file's vectors differ from torch's by {worst:.1e}, more than"
            f" {TOLERANCE:g}: this onnxruntime does not run what this torch exports"
        )
    return worst
