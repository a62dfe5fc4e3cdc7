"""Training a network on the images of a set (Barz & Denzler 2020, section 3), resumable."""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from visleak.errors import VisleakError
from visleak.records import Bytes8, Float32, Int64
from visleak.stats import Rate
from visleak.storage import replacing
from visleak.training.data import TrainingData
from visleak.training.loop import Diverged, Loop, deterministic
from visleak.training.networks import WIDTH, augmented, built, class_loss, generator, instance_loss
from visleak.training.plan import MOMENTUM, WEIGHT_DECAY, Plan

#: Called with the work done and in total, in images of full side.
OnProgress = Callable[[int, int], None]

#: Images per call without gradients.
BATCH: Final = 256

#: Kind of the random numbers of views; see :mod:`visleak.training.run` for the others.
VIEWS: Final = 3


@dataclass(frozen=True)
class Scaling:
    """Mean and standard deviation of a set's channels, for values from 0 to 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def of(self, maps: Any) -> Any:
        """Return the network's input of images (n, 3, h, w) with values from 0 to 255."""
        mean, std = (
            torch.tensor(values, device=maps.device).view(1, 3, 1, 1)
            for values in (self.mean, self.std)
        )
        scaled = (maps / 255 - mean) / std
        return scaled.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class TrainedNetwork:
    """A network that has been trained.

    Attributes:
        plan: of the training.
        scaling: of its input.
        network: from scaled images to vectors (n, 512), on the CPU or where it was trained.
        head: from vectors to scores of classes, or to compared vectors.
        losses: mean loss of each epoch.
    """

    plan: Plan
    scaling: Scaling
    network: Any
    head: Any
    losses: tuple[float, ...]

    @property
    def device(self) -> Any:
        """The device of torch that it is on."""
        return next(self.network.parameters()).device

    def vectors(
        self, images: Bytes8, rows: Int64 | None = None, progress: OnProgress | None = None
    ) -> Float32:
        """Return unit vectors (n, 512) of images.

        Args:
            images: ``uint8`` (m, side, side, 3); may be memory-mapped.
            rows: ``int64`` (n,), those of them that are used; by default all.
            progress: called with the number done.
        """
        return self._units(images, rows, None, progress)

    def views(self, images: Bytes8, rows: Int64, number: int) -> Float32:
        """Return unit vectors (n, 512) of images augmented as in training.

        Args:
            images, rows: as for :meth:`vectors`.
            number: of the random changes.
        """
        return self._units(images, rows, number, None)

    def classes(self, images: Bytes8, rows: Int64, progress: OnProgress | None = None) -> Int64:
        """Return the predicted class of each image, (n,).

        Args:
            images, rows, progress: as for :meth:`vectors`.
        """
        found = np.empty(len(rows), np.int64)
        for part, made in self._vectors(images, rows, None, progress):
            found[part] = self.head(made).argmax(1).cpu().numpy()
        return found

    def _units(
        self, images: Bytes8, rows: Int64 | None, view: int | None, progress: OnProgress | None
    ) -> Float32:
        taken = np.arange(len(images)) if rows is None else rows
        found = np.empty((len(taken), WIDTH), np.float32)
        for part, made in self._vectors(images, taken, view, progress):
            found[part] = torch.nn.functional.normalize(made, dim=1).cpu().numpy()
        return found

    def _vectors(
        self, images: Bytes8, rows: Int64, view: int | None, progress: OnProgress | None
    ) -> Iterator[tuple[slice, Any]]:
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
    """Return mean and deviation of the channels of some images, to six decimals.

    The sums are of integers, so they do not depend on the order.

    Args:
        images: ``uint8`` (n, height, width, 3).
        rows: ``int64`` (k,), those of them that are learned.
    """
    sums, squares, count = np.zeros(3, np.int64), np.zeros(3, np.int64), 0
    for start in range(0, len(rows), BATCH):
        values = np.asarray(images[rows[start : start + BATCH]]).reshape(-1, 3).astype(np.int64)
        sums += values.sum(0)
        squares += (values * values).sum(0)
        count += len(values)
    mean = sums / count
    std = np.sqrt(np.maximum(squares / count - mean * mean, 1.0))
    return Scaling(*(tuple(round(float(value) / 255, 6) for value in each) for each in (mean, std)))


#: Neighbours that vote.
NEIGHBOURS: Final = 20

#: Similarities in memory at once.
_AT_ONCE: Final = 1 << 24


def agreement(found: Int64, true: Int64) -> Rate:
    """Return how many of two columns of class numbers (n,) agree."""
    return Rate.of(int((found == true).sum()), len(true))


def twin_rate(first: Float32, second: Float32) -> Rate:
    """Return how many rows (n, d) have their most similar row of the other matrix in their place.

    The first of equally similar rows counts as found.
    """
    found = np.concatenate(
        [similar.argmax(axis=1) for _, similar in _blocks(first, second)] or [np.empty(0, np.int64)]
    )
    return Rate.of(int((found == np.arange(len(first))).sum()), len(first))


def by_neighbours(
    query: Float32, reference: Float32, classes: Int64, neighbours: int = NEIGHBOURS
) -> Int64:
    """Return the class that the most similar references vote for, each by its similarity.

    Args:
        query: ``float32`` (n, d), unit rows.
        reference: ``float32`` (m, d), unit rows.
        classes: ``int64`` (m,): of the references, counted from 0.
        neighbours: number that vote.
    """
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


#: Images evaluated by two views, and images that may vote, at most.
TWINS: Final = 2_000
VOTERS: Final = 50_000


def evaluated(
    network: TrainedNetwork, material: TrainingData, progress: OnProgress
) -> dict[str, Rate]:
    """Evaluate a network on images that it did not learn from.

    Args:
        network: the network.
        material: its training data, with the images to evaluate on.
        progress: called with the number of images done.

    Returns:
        ``accuracy`` if classes were learned. Otherwise ``views``: how often the other view of an
        image is the most similar of all; and, if classes are known, the accuracy of the nearest
        training images. Empty if nothing could be held out.
    """
    data = material.evaluation
    if not len(data.rows):
        return {}
    if material.by_class and data.classes is not None:
        found = network.classes(data.images, data.rows, progress)
        return {"accuracy": agreement(found, data.classes)}
    some = data.rows[:: max(1, len(data.rows) // TWINS)][:TWINS]
    views = (network.views(data.images, some, number) for number in (0, 1))
    scores = {"views": twin_rate(*views)}
    voters = _voters(material)
    if data.classes is not None and material.classes is not None and len(voters):
        reference = network.vectors(material.images, material.rows[voters], progress)
        query = network.vectors(data.images, data.rows)
        found = by_neighbours(query, reference, material.classes[voters])
        scores[f"{NEIGHBOURS} nearest"] = agreement(found, data.classes)
    return scores


def _voters(material: TrainingData) -> Int64:
    """Return places of the training data whose class is known, spread over it."""
    if material.classes is None:
        return np.empty(0, np.int64)
    known = np.flatnonzero(material.classes >= 0)
    return known[:: -(-len(known) // VOTERS) or 1]


#: Kind of the file, with the version of its layout.
KIND: Final = "visleak training 1"

#: A checkpoint is written at the end of each epoch and at this interval in seconds, but no more
#: than a tenth of the time is spent on it.
SAVE_SECONDS: Final = 60.0
SAVE_SHARE: Final = 10.0

#: Kinds of random numbers, distinct for each use.
ORDER, CHANGES = 1, 2


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training run between two steps.

    Attributes:
        key: of the plan and the data (:meth:`visleak.training.plan.Plan.key`).
        step: number of steps done.
        network, head, optimizer: their states, tensors by name.
        losses: mean loss of each finished epoch.
        running: sum of the losses of the current epoch.
    """

    key: str
    step: int
    network: dict[str, Any]
    head: dict[str, Any]
    optimizer: dict[str, Any]
    losses: list[float]
    running: float

    def write(self, path: Path) -> None:
        """Write it atomically: after a kill there is this one or the one before."""
        with replacing(path) as beside:
            torch.save({"kind": KIND, **vars(self)}, beside)


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Return the checkpoint in a file, ``None`` if there is none.

    Raises:
        VisleakError: the file is not a checkpoint. Nothing in it is ever executed.
    """
    if not path.exists():
        return None
    try:
        with warnings.catch_warnings():
            # about the kind of pickle; a file that is not a checkpoint is refused in any case
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
        if content.pop("kind") != KIND:
            raise ValueError("another version wrote it")
        found = Checkpoint(**content)
        if not (isinstance(found.step, int) and isinstance(found.losses, list)):
            raise ValueError("its counts are damaged")
        return found
    except (
        *(OSError, EOFError, RuntimeError, pickle.UnpicklingError),
        *(ValueError, KeyError, TypeError, AttributeError),
    ) as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: Exception) -> VisleakError:
    # torch's own message is a page long and explains how to load it nevertheless
    why = "it may hold a program" if isinstance(error, pickle.UnpicklingError) else "damaged"
    return VisleakError(f"{path} is not a checkpoint of visleak ({why}); delete it and train again")


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
    """Train a network, resuming from a checkpoint of the same key.

    Args:
        plan: of the training.
        images: ``uint8`` (n, side, side, 3); may be memory-mapped.
        rows: ``int64`` (plan.images,): those to learn from.
        classes: ``int64`` (plan.images,): their classes, ``None`` for instances.
        scaling: of the images.
        key: of the plan and the data.
        checkpoint: file to resume from, and to write.
        device: of torch.
        progress: called with the work done and in total.
        notify: called with a line on the checkpoint.

    Raises:
        VisleakError: the checkpoint is damaged or cannot be written, or the training diverged.
    """
    network, head = (part.to(device) for part in built(plan.network, plan.classes, plan.seed))
    precision = torch.autocast(
        torch.device(device).type, torch.bfloat16, enabled=plan.precision == "bf16"
    )

    def batches(epoch: int) -> Sequence[Int64]:
        order = torch.randperm(len(rows), generator=generator(plan.seed, ORDER, epoch)).numpy()
        starts = range(0, plan.steps_per_epoch * plan.batch, plan.batch)
        return [order[start : start + plan.batch] for start in starts]

    def loss_of(chosen: Int64, step: int) -> Any:
        side = plan.side_at(step // plan.steps_per_epoch)
        stored = torch.from_numpy(np.asarray(images[rows[chosen]])).to(device)
        draw = generator(plan.seed, CHANGES, step)
        views = 1 if plan.classes else 2
        maps = torch.cat([augmented(stored, plan, side, draw) for _ in range(views)])
        with precision:
            made = head(network(scaling.of(maps)))
        if classes is None:
            return instance_loss(made)
        return class_loss(made, torch.from_numpy(classes[chosen]).to(device))

    optimizer = torch.optim.SGD(
        [*network.parameters(), *head.parameters()],
        lr=plan.rate(0),
        momentum=MOMENTUM,
        nesterov=True,
        weight_decay=WEIGHT_DECAY,
    )
    loop = Loop(optimizer, plan.epochs, batches, plan.rate, loss_of)
    saver = _Saver(loop, network, head, key, checkpoint)

    def on_step() -> None:
        progress(plan.done(loop.step), plan.work[-1])
        if time.monotonic() - saver.saved > SAVE_SECONDS:
            saver.save()

    loop.on_step, loop.on_epoch = on_step, saver.save
    with deterministic():
        saver.resume(plan.steps, notify)
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


class _Saver:
    """Saves and restores the state of a loop."""

    def __init__(self, loop: Loop, network: Any, head: Any, key: str, path: Path) -> None:
        self._loop, self._key, self._path = loop, key, path
        self._parts = {"network": network, "head": head, "optimizer": loop.optimizer}
        self.saved, self._cost = time.monotonic(), 0.0

    def resume(self, steps: int, notify: Callable[[str], None]) -> None:
        """Restore the state in the checkpoint, if it is of this training run."""
        found, loop = read_checkpoint(self._path), self._loop
        if found is None:
            return
        if found.key != self._key:
            notify("the checkpoint next to the output is of another training run: starting over")
            return
        try:
            for name, part in self._parts.items():
                part.load_state_dict(getattr(found, name))
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _refused(self._path, error) from error
        loop.step, loop.running, loop.losses = found.step, found.running, list(found.losses)
        notify(f"resumed: {loop.step:,} of {steps:,} steps were done before")

    def save(self) -> None:
        """Write a checkpoint, unless the last one was written a moment ago."""
        begun, loop = time.monotonic(), self._loop
        if begun - self.saved < SAVE_SHARE * self._cost:
            return
        states = {name: part.state_dict() for name, part in self._parts.items()}
        state = Checkpoint(
            key=self._key, step=loop.step, losses=loop.losses, running=loop.running, **states
        )
        try:
            state.write(self._path)
        except OSError as error:
            raise VisleakError(f"the checkpoint {self._path} cannot be written: {error}") from error
        self.saved = time.monotonic()
        self._cost = self.saved - begun
