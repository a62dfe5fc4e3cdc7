"""Networks as encoders: torch, batches, devices, precision.

A network is run on batches of one fixed size, the last one filled up: measured on a CPU, a vector
then does not depend on its neighbours at all, and on ``batch`` by less than 1e-6 in a coordinate
(about 1e-7; half precision is coarser by itself). Two GPUs differ more than that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.documents import digest_of
from visleak.encoders.flatness import flat
from visleak.encoders.libraries import library
from visleak.encoders.processors import Preprocessing
from visleak.encoders.request import Request
from visleak.errors import UsageError
from visleak.records import Bool, DecodedImage, Float32
from visleak.vectors import unit_rows

#: Options that every network has. None changes what its vectors mean.
RUNNING: Final = ("device", "precision", "batch")

PRECISIONS: Final = ("auto", "fp32", "fp16", "bf16")

#: Pictures a call of the network, where nobody says.
CPU_BATCH: Final = 16
GPU_BATCH: Final = 256


@dataclass(frozen=True, slots=True)
class Running:
    """Where and how a network runs.

    Attributes:
        device: ``cpu``, ``cuda:N`` or ``mps``.
        precision: ``fp32``, ``fp16`` or ``bf16``.
        batch: pictures a call of the network.
    """

    device: str
    precision: str
    batch: int

    @classmethod
    def asked(cls, request: Request) -> Running:
        """Return what a request's options say; ``auto`` is a CUDA GPU where torch sees one.

        Raises:
            UsageError: a value that cannot be, or a device that is not there.
        """
        device = _device(request)
        precision = request.choice("precision", PRECISIONS, "auto")
        gpu = device.startswith("cuda")
        if precision == "auto":
            precision = "fp16" if gpu else "fp32"
        return cls(device, precision, request.number("batch", GPU_BATCH if gpu else CPU_BATCH))


def _device(request: Request) -> str:
    torch = library("torch", "torch", request.called)
    asked = request.options.get("device", "auto")
    kind, colon, number = asked.partition(":")
    numbered = kind == "cuda" and number.isascii() and number.isdecimal() and len(number) < 4
    if kind not in ("auto", "cpu", "cuda", "mps") or (colon and not numbered):
        raise request.refused("device", "auto, cpu, cuda, cuda:N or mps")
    cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "auto":
        return "cuda:0" if cuda else "cpu"
    if kind == "cuda" and int(number or 0) >= cuda:
        raise UsageError(
            f"device {asked} is not there: torch {torch.__version__} sees {cuda} CUDA GPUs; use"
            " device=cpu, or install the torch of the machine (pytorch.org)"
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise UsageError(f"device mps is not there: torch {torch.__version__} cannot use it")
    return f"cuda:{int(number or 0)}" if kind == "cuda" else asked


@dataclass(frozen=True)
class Tower:
    """A loaded network that makes vectors of pictures.

    Attributes:
        module: the network, in ``float32`` on the CPU.
        vectors: from the module and its input (n, 3, height, width) to vectors (n, width).
        digest: of its weights and of what it does with them.
    """

    module: Any
    vectors: Callable[[Any, Any], Any]
    digest: str


class NetworkEncoder:
    """A network with its preprocessing, thresholds and place to run; see the module."""

    #: A picture decoded in part has other pixels.
    enough = 0
    views = 1
    cohort: Float32 | None = None

    def __init__(
        self,
        name: str,
        tower: Tower,
        preprocessing: Preprocessing,
        running: Running,
        thresholds: Mapping[str, Any] | None = None,
    ) -> None:
        self._torch = library("torch", "torch", f"encoder {name}")
        self.name = name
        self.preparation = preprocessing.pixels
        self.precision, self.device = running.precision, running.device
        self.thresholds = thresholds
        self.digest = digest(tower.digest, preprocessing.recipe())
        # pictures of many shapes go one at a time: a vector must not depend on its neighbours
        self.batch = running.batch if self.preparation.shape else 1
        #: with its name, what another process needs to load it on a device of its own
        self.running_options = {"precision": self.precision, "batch": running.batch}
        self._scaling = preprocessing.scaling
        self._vectors = tower.vectors
        dtypes = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
        self._dtype = getattr(self._torch, dtypes[running.precision])
        self._module = tower.module.eval().to(device=running.device, dtype=self._dtype)
        blank = DecodedImage(np.full((64, 64, 3), 127, np.uint8), 64, 64)
        self.width = int(self._run(np.stack([self.preparation(blank)])).shape[1])

    def encode(self, pictures: Sequence[DecodedImage]) -> tuple[Float32, Bool]:
        """Return unit vectors (n, width) and whether each picture is flat (n,)."""
        vectors = np.empty((len(pictures), self.width), np.float32)
        for start in range(0, len(pictures), self.batch):
            part = slice(start, start + self.batch)
            vectors[part] = self.forward([self.preparation(each) for each in pictures[part]])
        return vectors, flat(pictures)

    def forward(self, prepared: Sequence[npt.NDArray[Any]]) -> Float32:
        """Return unit vectors (n, width) of prepared pictures, ``uint8`` (height, width, 3).

        Where the network ran into numbers beyond its precision, or made none, the row is NaN.
        """
        rows = unit_rows(self.outputs(prepared))
        # what has no direction has no similarity either
        rows.matrix[rows.broken] = np.nan
        return rows.matrix

    def outputs(self, prepared: Sequence[npt.NDArray[Any]]) -> Float32:
        """Return what the network itself makes of prepared pictures, (n, width), of any length."""
        made = np.zeros((len(prepared), self.width), np.float32)
        for start in range(0, len(prepared), self.batch):
            part = prepared[start : start + self.batch]
            # filled up with the last picture: a vector depends on the size of its batch
            full = [*part, *[part[-1]] * (self.batch - len(part))]
            made[start : start + len(part)] = self._run(np.stack(full))[: len(part)]
        return made

    def view(self, vectors: Float32, view: int) -> Float32:
        """Return the vectors: only the original view can be made of them."""
        if view != 0:
            raise ValueError(f"encoder {self.name} has no view {view}")
        return vectors

    def _run(self, pixels: npt.NDArray[Any]) -> Float32:
        """Return the network's vectors (n, width) of pixels (n, height, width, 3)."""
        torch, scaling = self._torch, self._scaling
        stored = torch.from_numpy(np.ascontiguousarray(pixels))
        gpu = self.device.startswith("cuda")
        if gpu:
            stored = stored.pin_memory()
        with torch.inference_mode(), self._exactly():
            inputs = stored.to(self.device, non_blocking=gpu).permute(0, 3, 1, 2).float()
            mean, std = (
                torch.tensor(values, device=self.device).view(1, 3, 1, 1)
                for values in (scaling.mean, scaling.std)
            )
            inputs = inputs.mul_(scaling.factor).sub_(mean).div_(std).contiguous()
            made = self._vectors(self._module, inputs.to(self._dtype))
            return np.asarray(made.flatten(1).float().cpu().numpy(), np.float32)

    def _exactly(self) -> AbstractContextManager[None]:
        """Keep cuDNN from rounding to TF32 and from choosing kernels by trial, for one call."""
        if not self.device.startswith("cuda"):
            return nullcontext()
        flags: AbstractContextManager[None] = self._torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        )
        return flags


def digest(*parts: str | Mapping[str, Any]) -> str:
    """Return the digest of texts and plain values together.

    >>> digest("weights", {"b": 1, "a": 2}) == digest("weights", {"a": 2, "b": 1})
    True
    """
    return digest_of(list(parts))


def tensors_digest(tensors: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """Return the digest of a network's tensors, as ``float32``, and of what is done with them.

    Args:
        tensors: by name; whole numbers (counters, positions) are no weights and left out. One is
            asked for at a time.
        about: everything else that the network's vectors depend on, as plain values.
    """
    hasher = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        if not tensor.is_floating_point():
            continue
        values = tensor.detach().float().cpu().contiguous().numpy().astype("<f4", copy=False)
        hasher.update(json.dumps([name, list(values.shape)]).encode())
        hasher.update(values.data if values.size else b"")
    return hasher.hexdigest()
