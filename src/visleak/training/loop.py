"""One training loop of torch, reproducible to the bit.

Every random number of a step is drawn from a generator made of the seed and the number of the
step, so that a resumed run sees what it would have seen, and ends with the same weights (on one
machine, with the same number of threads). Nothing of torch's own state is left changed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from visleak.records import Int64


class Diverged(Exception):
    """The loss is not finite; holds the number of the epoch, from 1."""


@contextmanager
def deterministic(threads: int | None = None) -> Iterator[None]:
    """Let torch use deterministic algorithms only, and a number of threads; restore it after."""
    # cuBLAS reads it when it is first used
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    tuned = torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(threads or before[1])
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.set_num_threads(before[1])
        torch.backends.cudnn.benchmark = tuned


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw initial weights from a seed; torch's own generator stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@dataclass
class Loop:
    """The steps of a training run; its state can be saved and restored between two steps."""

    optimizer: torch.optim.Optimizer  # of torch
    epochs: int  # number of passes
    batches: Callable[[int], Sequence[Int64]]  # items of each step of an epoch, equally many
    rate: Callable[[int], float]  # learning rate of a step
    loss_of: Callable[[Int64, int], torch.Tensor]  # the loss of some items at a step
    on_step: Callable[[], None] = lambda: None  # on_step, on_epoch: called after each
    on_epoch: Callable[[], None] = lambda: None
    step: int = 0  # number of steps done
    running: float = 0.0  # sum of the losses of the current epoch
    losses: list[float] = field(default_factory=list)  # mean loss of each finished epoch

    def run(self) -> list[float]:
        """Do the remaining steps; return the mean loss of each epoch."""
        while len(self.losses) < self.epochs:
            epoch = len(self.losses)
            batches = self.batches(epoch)
            for items in batches[self.step - epoch * len(batches) :]:
                for group in self.optimizer.param_groups:
                    group["lr"] = self.rate(self.step)
                loss = self.loss_of(items, self.step)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.running += float(loss.detach())
                self.step += 1
                self.on_step()
            self.losses.append(self.running / len(batches))
            self.running = 0.0
            if not math.isfinite(self.losses[-1]):
                raise Diverged(epoch + 1)
            self.on_epoch()
        return self.losses
