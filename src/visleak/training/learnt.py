"""A network that has been trained, and what it makes of pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from visleak.records import Bytes8, Float32, Int64
from visleak.training.changes import changed, generator
from visleak.training.networks import WIDTH
from visleak.training.plan import Plan

#: Is told what is done and what there is to do, in pictures of full side.
Told = Callable[[int, int], None]

#: Pictures a call where nothing is learnt.
LOOK: Final = 256

#: Kind of the random numbers of views; see :mod:`visleak.training.course` for the others.
VIEWS: Final = 3


@dataclass(frozen=True)
class Scaling:
    """Mean and standard deviation of a set's channels, for values from 0 to 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def of(self, maps: Any) -> Any:
        """Return what the network takes of pictures (n, 3, h, w) with values from 0 to 255."""
        mean, std = (
            torch.tensor(values, device=maps.device).view(1, 3, 1, 1)
            for values in (self.mean, self.std)
        )
        scaled = (maps / 255 - mean) / std
        return scaled.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class Learnt:
    """A network that has been trained.

    Attributes:
        plan: how.
        scaling: of its input.
        network: from scaled pictures to vectors (n, 512), on the CPU or where it was trained.
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
        """Where it is."""
        return next(self.network.parameters()).device

    def vectors(
        self, pictures: Bytes8, rows: Int64 | None = None, told: Told | None = None
    ) -> Float32:
        """Return unit vectors (n, 512) of pictures, zero where there are none.

        Args:
            pictures: ``uint8`` (m, side, side, 3); may be memory-mapped.
            rows: ``int64`` (n,), those of them that are looked at; by default all.
            told: is told how many are done.
        """
        return self._units(pictures, rows, None, told)

    def views(self, pictures: Bytes8, rows: Int64, number: int) -> Float32:
        """Return unit vectors (n, 512) of pictures changed as in training.

        Args:
            pictures, rows: as for :meth:`vectors`.
            number: another one gives other changes.
        """
        return self._units(pictures, rows, number, None)

    def classes(self, pictures: Bytes8, rows: Int64, told: Told | None = None) -> Int64:
        """Return the number of the class that each picture is taken for, (n,).

        Args:
            pictures, rows, told: as for :meth:`vectors`.
        """
        found = np.empty(len(rows), np.int64)
        for part, made in self._looked_at(pictures, rows, None, told):
            found[part] = self.head(made).argmax(1).cpu().numpy()
        return found

    def _units(
        self, pictures: Bytes8, rows: Int64 | None, view: int | None, told: Told | None
    ) -> Float32:
        taken = np.arange(len(pictures)) if rows is None else rows
        found = np.empty((len(taken), WIDTH), np.float32)
        for part, made in self._looked_at(pictures, taken, view, told):
            found[part] = torch.nn.functional.normalize(made, dim=1).cpu().numpy()
        return found

    def _looked_at(
        self, pictures: Bytes8, rows: Int64, view: int | None, told: Told | None
    ) -> Iterator[tuple[slice, Any]]:
        """Yield places in the rows and what the network makes of their pictures, (k, 512)."""
        self.network.eval()
        self.head.eval()
        with torch.inference_mode():
            for start in range(0, len(rows), LOOK):
                part = slice(start, start + LOOK)
                stored = torch.from_numpy(np.array(pictures[rows[part]])).to(self.device)
                if view is None:
                    maps = stored.permute(0, 3, 1, 2).float()
                else:
                    draw = generator(self.plan.seed, VIEWS, view, start)
                    maps = changed(stored, self.plan, self.plan.side, draw)
                yield part, self.network(self.scaling.of(maps))
                if told is not None:
                    told(min(start + LOOK, len(rows)), len(rows))


def scaling_of(pictures: Bytes8, rows: Int64) -> Scaling:
    """Return mean and deviation of the channels of some pictures, to six decimals.

    The sums are of integers, so they do not depend on the order.

    Args:
        pictures: ``uint8`` (n, height, width, 3).
        rows: ``int64`` (k,), those of them that are learnt from.
    """
    sums, squares, count = np.zeros(3, np.int64), np.zeros(3, np.int64), 0
    for start in range(0, len(rows), LOOK):
        values = np.asarray(pictures[rows[start : start + LOOK]]).reshape(-1, 3).astype(np.int64)
        sums += values.sum(0)
        squares += (values * values).sum(0)
        count += len(values)
    mean = sums / count
    std = np.sqrt(np.maximum(squares / count - mean * mean, 1.0))
    return Scaling(*(tuple(round(float(value) / 255, 6) for value in each) for each in (mean, std)))
