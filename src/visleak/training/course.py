"""Training a network on a set's own pictures (Barz & Denzler 2020, section 3).

Every random number of a step is drawn from a generator that is made of the seed and of the
step's number. So a training that goes on from a checkpoint sees what it would have seen, and
ends with the same weights to the bit (on one machine, with as many threads).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from visleak.errors import VisleakError
from visleak.records import Bytes8, Int64
from visleak.training.changes import changed, generator
from visleak.training.checkpoint import Checkpoint, read_checkpoint, refused
from visleak.training.learnt import Learnt, Scaling, Told
from visleak.training.networks import built
from visleak.training.objectives import class_loss, instance_loss
from visleak.training.plan import MOMENTUM, WEIGHT_DECAY, Plan

#: A checkpoint is written at the end of each epoch and after so many seconds, but no more than a
#: tenth of the time goes into that.
SAVE_SECONDS: Final = 60.0
SAVE_SHARE: Final = 10.0

#: Kinds of random numbers, so that no two uses share theirs.
ORDER, CHANGES = 1, 2


def train(
    plan: Plan,
    pictures: Bytes8,
    rows: Int64,
    classes: Int64 | None,
    *,
    scaling: Scaling,
    key: str,
    checkpoint: Path,
    device: str = "cpu",
    told: Told | None = None,
    say: Callable[[str], None] | None = None,
) -> Learnt:
    """Train a network, going on from a checkpoint of the same key.

    Args:
        plan: how.
        pictures: ``uint8`` (n, side, side, 3); may be memory-mapped.
        rows: ``int64`` (plan.pictures,): those to learn from.
        classes: ``int64`` (plan.pictures,): their classes, ``None`` for instances.
        scaling: of the pictures.
        key: of the plan and the data.
        checkpoint: file that it goes on from, and that is written.
        device: of torch.
        told: is told how far it is.
        say: is told in words of a checkpoint that is used or is not.

    Raises:
        VisleakError: the checkpoint is none, cannot be written, or the loss is no number.
    """
    course = _Course(plan, pictures, rows, classes, scaling, key, checkpoint, device)
    with _exactly():
        course.resume(say or (lambda text: None))
        course.run(told or (lambda done, total: None))
    return Learnt(plan, scaling, course.network, course.head, tuple(course.losses))


@contextmanager
def _exactly() -> Iterator[None]:
    """Let torch use deterministic algorithms only, for one training."""
    # cuBLAS reads it when it is first used
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


class _Course:
    """A training under way; see :func:`train` for the arguments."""

    def __init__(
        self,
        plan: Plan,
        pictures: Bytes8,
        rows: Int64,
        classes: Int64 | None,
        scaling: Scaling,
        key: str,
        checkpoint: Path,
        device: str,
    ) -> None:
        self.plan, self.scaling, self.key = plan, scaling, key
        self.pictures, self.rows, self.classes = pictures, rows, classes
        self.checkpoint, self.device = checkpoint, device
        self.network, self.head = (
            part.to(device) for part in built(plan.network, plan.classes, plan.seed)
        )
        weights = [*self.network.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.SGD(
            weights, lr=plan.rate(0), momentum=MOMENTUM, nesterov=True, weight_decay=WEIGHT_DECAY
        )
        self.step, self.running = 0, 0.0
        self.losses: list[float] = []
        self._saved, self._cost = time.monotonic(), 0.0

    def resume(self, say: Callable[[str], None]) -> None:
        """Take up the state in the checkpoint, if it is of this very training."""
        found = read_checkpoint(self.checkpoint)
        if found is None:
            return
        if found.key != self.key:
            say("the checkpoint beside the output is of another training: this one begins anew")
            return
        try:
            self.network.load_state_dict(found.network)
            self.head.load_state_dict(found.head)
            self.optimizer.load_state_dict(found.optimizer)
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise refused(self.checkpoint, error) from error
        self.step, self.running, self.losses = found.step, found.running, list(found.losses)
        say(f"continued: {self.step:,} of {self.plan.steps:,} steps were done before")

    def run(self, told: Told) -> None:
        """Do the steps that are left."""
        plan = self.plan
        self.network.train()
        self.head.train()
        while self.step < plan.steps:
            epoch, inside = divmod(self.step, plan.steps_an_epoch)
            order = torch.randperm(len(self.rows), generator=generator(plan.seed, ORDER, epoch))
            for place in range(inside, plan.steps_an_epoch):
                start = place * plan.batch
                self.running += self._learn(order[start : start + plan.batch].numpy(), epoch)
                self.step += 1
                told(plan.done(self.step), plan.work[-1])
                if time.monotonic() - self._saved > SAVE_SECONDS:
                    self._save()
            self.losses.append(self.running / plan.steps_an_epoch)
            self.running = 0.0
            if not math.isfinite(self.losses[-1]):
                raise VisleakError(
                    f"the training lost its way in epoch {epoch + 1} (its loss is no number);"
                    " take another --seed, or --precision fp32"
                )
            self._save()

    def _learn(self, chosen: Int64, epoch: int) -> float:
        """Do a step on some places of the rows; return its loss."""
        plan, side = self.plan, self.plan.side_at(epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = plan.rate(self.step)
        stored = torch.from_numpy(np.asarray(self.pictures[self.rows[chosen]])).to(self.device)
        draw = generator(plan.seed, CHANGES, self.step)
        views = 1 if plan.classes else 2
        maps = torch.cat([changed(stored, plan, side, draw) for _ in range(views)])
        with self._precision():
            made = self.head(self.network(self.scaling.of(maps)))
        if self.classes is None:
            loss = instance_loss(made)
        else:
            loss = class_loss(made, torch.from_numpy(self.classes[chosen]).to(self.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def _precision(self) -> Any:
        half = self.plan.precision == "bf16"
        kind = torch.device(self.device).type
        return torch.autocast(kind, torch.bfloat16, enabled=half)

    def _save(self) -> None:
        """Write a checkpoint, unless the last one was written a moment ago."""
        begun = time.monotonic()
        if begun - self._saved < SAVE_SHARE * self._cost:
            return
        network, head, optimizer = (
            each.state_dict() for each in (self.network, self.head, self.optimizer)
        )
        state = Checkpoint(self.key, self.step, network, head, optimizer, self.losses, self.running)
        try:
            state.write(self.checkpoint)
        except OSError as error:
            raise VisleakError(
                f"the checkpoint {self.checkpoint} cannot be written: {error}"
            ) from error
        self._saved = time.monotonic()
        self._cost = self._saved - begun
