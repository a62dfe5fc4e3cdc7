"""Teaching a network of torch, to the bit the same each time.

Every random number is drawn from a generator that is made of the seed and of the number of the
step. Nothing of torch's own state is left changed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from visleak.dlede.lesson import TrainingFailed
from visleak.records import Int64

#: Share of the steps in which the rate rises; in the rest it falls along a cosine.
RISE: Final = 0.15

#: Decay of the weights; what has one dimension only (biases, normalisation) is left out.
WEIGHT_DECAY: Final = 0.01

#: Kinds of random numbers, so that no two uses share theirs.
WEIGHTS, ORDER, CHANGES = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a network is taught.

    Attributes:
        epochs: passes over the pictures.
        batch: pictures a step, about: an epoch is cut into steps of nearly the same size.
        rate: the highest of the learning rates.
        seed: of weights, order and changes.
    """

    epochs: int
    batch: int
    rate: float
    seed: int

    def steps(self, count: int) -> int:
        """Return how many steps an epoch over so many pictures has."""
        return max(1, round(count / self.batch))


def numbers(*seed: int) -> np.random.Generator:
    """Return a generator that depends on some numbers, and on nothing else."""
    return np.random.default_rng(np.random.SeedSequence(seed))


@contextmanager
def exactly(threads: int) -> Iterator[None]:
    """Let torch use deterministic algorithms only, and so many threads; then all is as before."""
    # cuBLAS reads it when it is first used
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    tuned = torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.set_num_threads(before[1])
        torch.backends.cudnn.benchmark = tuned


def built(make: Callable[[], Any], seed: int, device: str) -> Any:
    """Return a network with the weights that a seed gives; torch's own generator stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(numbers(seed, WEIGHTS).integers(2**62)))
        made = make()
    return made.to(device=device, memory_format=torch.channels_last)


def learn(
    network: Any,
    count: int,
    schedule: Schedule,
    loss_of: Callable[[Int64, np.random.Generator], Any],
    say: Callable[[str], None],
) -> list[float]:
    """Teach a network; return the mean loss of each epoch.

    Args:
        network: in the mode that it is to learn in.
        count: pictures.
        schedule: how.
        loss_of: the loss of some of the pictures, given by their numbers; random changes are
            drawn from the generator.
        say: is told of each epoch.

    Raises:
        TrainingFailed: the loss is no number.
    """
    optimizer = _optimizer(network, schedule.rate)
    each = schedule.steps(count)
    total, step = each * schedule.epochs, 0
    losses = []
    for epoch in range(schedule.epochs):
        order = numbers(schedule.seed, ORDER, epoch).permutation(count)
        running = 0.0
        for chosen in np.array_split(order, each):
            for group in optimizer.param_groups:
                group["lr"] = rate_at(step, total, schedule.rate)
            loss = loss_of(chosen, numbers(schedule.seed, CHANGES, step))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += float(loss.detach())
            step += 1
        losses.append(running / each)
        say(f"epoch {epoch + 1} of {schedule.epochs}: loss {losses[-1]:.4f}")
        if not math.isfinite(losses[-1]):
            raise TrainingFailed(
                f"the loss is no number in epoch {epoch + 1}; take a smaller rate="
            )
    return losses


def _optimizer(network: Any, rate: float) -> Any:
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
