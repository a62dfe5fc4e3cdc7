"""A training half done, on disk: what a killed run goes on from."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from visleak.errors import VisleakError
from visleak.storage import replacing

#: What the file says it is; another layout gets another text.
KIND: Final = "visleak training 1"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training between two steps.

    Attributes:
        key: of the plan and the data (:meth:`visleak.training.plan.Plan.key`).
        step: steps that are done.
        network, head, optimizer: their states, tensors by name.
        losses: mean loss of each finished epoch.
        running: sum of the losses of the epoch's steps so far.
    """

    key: str
    step: int
    network: dict[str, Any]
    head: dict[str, Any]
    optimizer: dict[str, Any]
    losses: list[float]
    running: float

    def write(self, path: Path) -> None:
        """Write it in one step: after a kill there is this one or the one before."""
        with replacing(path) as beside:
            torch.save({"kind": KIND, **vars(self)}, beside)


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Return the checkpoint in a file, ``None`` where there is none.

    Raises:
        VisleakError: the file is no checkpoint. Nothing in it is ever executed.
    """
    if not path.exists():
        return None
    try:
        with warnings.catch_warnings():
            # of the pickle's kind; what is no checkpoint is refused in any case
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
        if content.pop("kind") != KIND:
            raise ValueError("another version wrote it")
        found = Checkpoint(**content)
        if not (isinstance(found.step, int) and isinstance(found.losses, list)):
            raise ValueError("its counts are none")
        return found
    except (
        *(OSError, EOFError, RuntimeError, pickle.UnpicklingError),
        *(ValueError, KeyError, TypeError, AttributeError),
    ) as error:
        raise refused(path, error) from error


def refused(path: Path, error: Exception) -> VisleakError:
    """Return the error for a file that is no checkpoint."""
    # torch's own message is a page long and tells how to load it nevertheless
    why = "it may hold a program" if isinstance(error, pickle.UnpicklingError) else "damaged"
    return VisleakError(f"{path} is no checkpoint of visleak ({why}); delete it and train again")
