"""Encoders that run on batches, and those among them that are networks of torch.

A network is run on batches of one fixed size, the last one filled up: measured on a CPU, a vector
then does not depend on its neighbours at all, and on ``batch`` by less than 1e-6 in a coordinate
(about 1e-7; half precision is coarser by itself). Two GPUs differ more than that.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import pickle
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from visleak.devices import network_device
from visleak.documents import digest_of
from visleak.encoders.builtin import flat
from visleak.encoders.preprocessing import PixelPreparation, Preprocessing, Scaling
from visleak.encoders.request import Request, stated_thresholds
from visleak.errors import UsageError, VisleakError, brief
from visleak.lazy import library
from visleak.records import Bool, Bytes8, DecodedImage, Float32, Preparation
from visleak.vectors import parts_of, unit_rows

if TYPE_CHECKING:
    import torch


class BatchedEncoder(ABC):
    """A :class:`visleak.records.BatchEncoder`; a subclass computes :meth:`outputs`."""

    name: str
    digest: str
    width: int
    batch: int
    preparation: Preparation
    thresholds: Mapping[str, object] | None
    enough = 0
    views = 1
    cohort: Float32 | None = None

    def encode(self, images: Sequence[DecodedImage]) -> tuple[Float32, Bool]:
        """Return unit vectors (n, width) and whether each image is flat (n,)."""
        vectors = np.empty((len(images), self.width), np.float32)
        for part in parts_of(len(images), self.batch):
            vectors[part] = self.forward([self.preparation(image) for image in images[part]])
        return vectors, flat(images)

    def forward(self, prepared: Sequence[npt.NDArray[np.generic]]) -> Float32:
        """Return unit vectors (n, width) of prepared images; NaN if the output has no direction."""
        rows = unit_rows(self.outputs(prepared))
        rows.matrix[rows.broken] = np.nan
        return rows.matrix

    @abstractmethod
    def outputs(self, prepared: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.generic]:
        """Return the raw outputs (n, width) for prepared images, of any length."""

    def view(self, vectors: Float32, view: int) -> Float32:
        """Return the vectors: only the original view can be made of them."""
        if view != 0:
            raise ValueError(f"encoder {self.name} has no view {view}")
        return vectors


#: Options that every network has. None changes what its vectors mean.
RUNNING: Final = ("device", "precision", "batch")
PRECISIONS: Final = ("auto", "fp32", "fp16", "bf16")
CPU_BATCH: Final = 16  # images per call of the network by default
GPU_BATCH: Final = 256


@dataclass(frozen=True, slots=True)
class Running:
    """Where and how a network runs."""

    device: str  # cpu, cuda:N or mps
    precision: str  # fp32, fp16 or bf16
    batch: int  # images per call of the network

    @classmethod
    def of(cls, request: Request) -> Running:
        """Return the options of a request; ``auto`` is a CUDA GPU if torch finds one."""
        device = network_device(
            library("torch", "torch", request.called),
            request.options.get("device", "auto"),
            request.refused("device", "auto, cpu, cuda, cuda:N or mps"),
            "device=cpu",
        )
        precision = request.choice("precision", PRECISIONS, "auto")
        gpu = device.startswith("cuda")
        if precision == "auto":
            precision = "fp16" if gpu else "fp32"
        return cls(device, precision, request.number("batch", GPU_BATCH if gpu else CPU_BATCH))


@dataclass(frozen=True)
class Tower:
    """A loaded network from images to vectors."""

    module: torch.nn.Module  # the network, in float32 on the CPU
    # from the module and its input (n, 3, height, width) to vectors (n, width)
    vectors: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]
    digest: str  # of its weights and of what it does with them


class NetworkEncoder(BatchedEncoder):
    """A network of torch with preprocessing, thresholds and device; images are decoded in full."""

    def __init__(
        self,
        name: str,
        tower: Tower,
        preprocessing: Preprocessing,
        running: Running,
        thresholds: Mapping[str, object] | None = None,
    ) -> None:
        self._torch = library("torch", "torch", f"encoder {name}")
        self.name = name
        self.preparation = preprocessing.pixels
        self.precision, self.device = running.precision, running.device
        self.thresholds = thresholds
        self.digest = digest_of([tower.digest, preprocessing.recipe()])
        # images of different shapes are run one by one: a vector must not depend on its neighbours
        self.batch = running.batch if preprocessing.pixels.shape else 1
        #: with its name, what another process needs to load it on a device of its own
        self.running_options = {"precision": self.precision, "batch": running.batch}
        self._scaling = preprocessing.scaling
        self._vectors = tower.vectors
        self._dtype = torch_type(self._torch, running.precision)
        self._module = tower.module.eval().to(device=running.device, dtype=self._dtype)
        blank = DecodedImage(np.full((64, 64, 3), 127, np.uint8), 64, 64)
        self.width = int(self._run(np.stack([self.preparation(blank)])).shape[1])

    def outputs(self, prepared: Sequence[npt.NDArray[np.generic]]) -> Float32:
        """Return the network's outputs (n, width) for prepared images, of any length."""
        made = np.zeros((len(prepared), self.width), np.float32)
        for start in range(0, len(prepared), self.batch):
            part = prepared[start : start + self.batch]
            # filled up with the last image: a vector depends on the size of its batch
            full = [*part, *[part[-1]] * (self.batch - len(part))]
            made[start : start + len(part)] = self._run(np.stack(full))[: len(part)]
        return made

    def _run(self, pixels: npt.NDArray[np.generic]) -> Float32:
        """Return the network's vectors (n, width) of pixels (n, height, width, 3)."""
        torch, scaling, gpu = self._torch, self._scaling, self.device.startswith("cuda")
        stored = torch.from_numpy(np.ascontiguousarray(pixels))
        if gpu:
            stored = stored.pin_memory()
        # cuDNN must neither round to TF32 nor choose kernels by trial
        exactly = {"benchmark": False, "deterministic": True, "allow_tf32": False}
        flags = torch.backends.cudnn.flags(enabled=True, **exactly) if gpu else nullcontext()
        with torch.inference_mode(), flags:
            inputs = stored.to(self.device, non_blocking=gpu).permute(0, 3, 1, 2).float()
            mean, std = (
                torch.tensor(values, device=self.device).view(1, 3, 1, 1)
                for values in (scaling.mean, scaling.std)
            )
            inputs = inputs.mul_(scaling.factor).sub_(mean).div_(std).contiguous()
            made = self._vectors(self._module, inputs.to(self._dtype))
            return np.asarray(made.flatten(1).float().cpu().numpy(), np.float32)


def torch_type(torch: ModuleType, precision: str) -> torch.dtype:
    """Return the type of torch of a precision."""
    names = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
    return getattr(torch, names[precision])


def tensors_digest(tensors: Mapping[str, torch.Tensor], about: Mapping[str, object]) -> str:
    """Return the digest of a network's tensors, as ``float32``, and of what is done with them."""
    hasher = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        if not tensor.is_floating_point():
            continue
        values = tensor.detach().float().cpu().contiguous().numpy().astype("<f4", copy=False)
        hasher.update(json.dumps([name, list(values.shape)]).encode())
        hasher.update(values.data if values.size else b"")
    return hasher.hexdigest()


# -- the copy detection network SSCD ---------------------------------------------------------------


#: The published resizings: the short side to 288, or a square whatever the shape; and the square of
#: MemBench's code (Hong et al. 2024).
RESIZES: Final = {"288": (288,), "320x320": (320, 320), "288x288": (288, 288)}
_BILINEAR: Final = 2
_IMAGENET: Final = Scaling(1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
NAME: Final = "sscd_disc_mixup.torchscript.pt"  # a published file, and where they are described
HOME: Final = "https://github.com/facebookresearch/sscd-copy-detection"


def sscd_encoder(request: Request) -> NetworkEncoder:
    """Return SSCD from a TorchScript file."""
    path = Path(request.wanted_argument("FILE")).expanduser()
    request.allow_only("resize", *RUNNING)
    resize = RESIZES[request.choice("resize", tuple(RESIZES), "288")]
    running = Running.of(request)
    torch = library("torch", "torch", "encoder sscd")
    advice = f"get {NAME} as {HOME} says, then sscd:FILE"
    script, content = load_script(torch, path, request.called, advice)
    stated = digest_of([content, {"network": "TorchScript"}])
    tower = Tower(script, lambda module, inputs: module(inputs), stated)
    pixels = PixelPreparation(resize, (), _BILINEAR)
    name, preprocessing = request.named("resize"), Preprocessing(pixels, _IMAGENET)
    try:
        return NetworkEncoder(name, tower, preprocessing, running)
    except (RuntimeError, AttributeError, IndexError) as error:
        raise VisleakError(
            f"encoder sscd: {path} does not make a vector of an image ({brief(error)}); it must"
            " take a batch (n, 3, height, width) and return (n, width)"
        ) from error


def load_script(
    torch: ModuleType, path: Path, what: str, advice: str
) -> tuple[torch.jit.ScriptModule, str]:
    """Return the network of a TorchScript file, ``float32`` on the CPU, and the file's digest."""
    if not path.is_file():
        raise VisleakError(f"{what}: there is no file {path}; {advice}")
    try:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
        with warnings.catch_warnings():
            # torch recommends another format for new files; published ones are in this one
            warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch.jit")
            return torch.jit.load(str(path), map_location="cpu").float(), content.hexdigest()
    except (RuntimeError, ValueError, OSError) as error:
        raise VisleakError(
            f"{what}: {path} is not TorchScript ({brief(error)}); {advice}"
        ) from error


# -- a Python object with a method ``encode`` ------------------------------------------------------


BATCH: Final = 32  # images per call if the object does not state it
TRIED: Final = 224  # side of the grey image by which the width of the vectors is found


class ObjectEncoder(BatchedEncoder):
    """An encoder around an object with a method ``encode``.

    The object may also have ``name``, ``digest``, ``width``, ``thresholds``, ``batch`` and
    ``enough``, which mean what they mean for any encoder.
    """

    precision = ""
    device = "its device"

    def __init__(self, thing: Any) -> None:
        if isinstance(thing, type):
            raise UsageError(f"the encoder is the class {thing.__name__}; give an object of it")
        if not callable(getattr(thing, "encode", None)):
            raise UsageError(
                f"the encoder object lacks encode, the method from images to vectors; got a"
                f" {type(thing).__name__}"
            )
        self.name = str(getattr(thing, "name", type(thing).__name__))
        self._thing = thing
        try:
            self.thresholds = stated_thresholds(getattr(thing, "thresholds", None))
        except ValueError as error:
            raise UsageError(f"encoder {self.name}: {error}") from error
        self.batch = self._number("batch", 1, BATCH)
        self.enough = self._number("enough", 0, 0)
        own = getattr(thing, "digest", None)
        if own is not None and (not isinstance(own, str) or not own):
            raise UsageError(f"encoder {self.name}: digest must be a text; got {own!r}")
        made = own or _digest(thing)
        #: whether another run would find the same digest
        self.lasting = made is not None
        self.digest = made or f"this run only {uuid.uuid4().hex}"
        self.preparation = all_pixels
        self.width = self._number("width", 1, 0) or self._tried()

    def outputs(self, prepared: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.float64]:
        """Return what the object makes of images, (n, width)."""
        made = self._encoded(prepared)
        if made.shape[1] != self.width:
            raise VisleakError(
                f"encode of {self.name} returned vectors of {made.shape[1]} numbers; they must be"
                f" of {self.width}, as before"
            )
        return made

    def _encoded(self, images: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.float64]:
        """Return what the object makes of images, ``float64`` (n, any width above 0)."""
        made = np.asarray(self._thing.encode(list(images)))
        if made.dtype.kind != "f":
            raise VisleakError(
                f"encode of {self.name} returned {made.dtype}; it must return an array of floats,"
                " one row per image"
            )
        if made.ndim != 2 or len(made) != len(images) or not made.shape[1]:
            raise VisleakError(
                f"encode of {self.name} returned an array {made.shape} for {len(images)}"
                f" images; it must be ({len(images)}, width)"
            )
        return made.astype(np.float64)

    def _tried(self) -> int:
        """Return the width of the vectors, by encoding a grey image."""
        grey = np.full((TRIED, TRIED, 3), 128, np.uint8)
        try:
            return int(self._encoded([grey]).shape[1])
        except VisleakError:
            raise
        except Exception as error:
            raise VisleakError(
                f"encode of {self.name} failed on a grey image of {TRIED} x {TRIED} pixels"
                f" ({brief(error, 300)})"
            ) from error

    def _number(self, attribute: str, least: int, default: int) -> int:
        value = getattr(self._thing, attribute, None)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UsageError(
                f"encoder {self.name}: {attribute} must be a whole number, {least} or more;"
                f" got {value!r}"
            )
        return value


def all_pixels(image: DecodedImage) -> Bytes8:
    """Return the pixels of an image: the preparation of an object."""
    return np.ascontiguousarray(image.pixels)


def _digest(thing: object) -> str | None:
    """Return a digest of an object's data and of its classes' sources, if both are available."""
    sink = _Sink()
    try:
        pickle.Pickler(sink, pickle.DEFAULT_PROTOCOL).dump(thing)
        for kind in type(thing).__mro__[:-1]:
            sink.write(inspect.getsource(kind).encode())
    except Exception:  # its own pickling may raise anything; it then has no digest of this kind
        return None
    return sink.hasher.hexdigest()


class _Sink:
    """A file that keeps only a digest of what is written to it."""

    def __init__(self) -> None:
        self.hasher = hashlib.blake2b(b"object 1", digest_size=16)

    def write(self, data: bytes) -> int:
        """Add bytes to the digest."""
        self.hasher.update(data)
        return memoryview(data).nbytes
