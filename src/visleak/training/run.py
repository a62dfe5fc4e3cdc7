"""Training a network on the images of a set (Barz & Denzler 2020, section 3), resumable."""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from visleak.errors import VisleakError
from visleak.records import Bytes8, Int64
from visleak.storage import replacing
from visleak.training.augmentation import augmented, generator
from visleak.training.loop import Diverged, Loop, deterministic
from visleak.training.networks import built, class_loss, instance_loss
from visleak.training.plan import MOMENTUM, WEIGHT_DECAY, Plan
from visleak.training.trained import OnProgress, Scaling, TrainedNetwork

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
        rows: ``int64`` (plan.pictures,): those to learn from.
        classes: ``int64`` (plan.pictures,): their classes, ``None`` for instances.
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
        starts = range(0, plan.steps_an_epoch * plan.batch, plan.batch)
        return [order[start : start + plan.batch] for start in starts]

    def loss_of(chosen: Int64, step: int) -> Any:
        side = plan.side_at(step // plan.steps_an_epoch)
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
