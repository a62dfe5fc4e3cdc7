"""``onnx:FILE``: a network in an ONNX file, prepared for as ``FILE.json`` beside it says."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.encoders.flatness import flat
from visleak.encoders.libraries import library
from visleak.encoders.onnx_data import external_files
from visleak.encoders.onnx_recipe import Recipe, read_recipe
from visleak.encoders.request import Request
from visleak.errors import UsageError, VisleakError
from visleak.records import Bool, DecodedImage, Float32
from visleak.vectors import NORM_TOLERANCE

#: Pictures a call of the network, where nobody says.
BATCH: Final = 32

#: What the network may take: ONNX's word for a type, numpy's, and ours for the precision.
TYPES: Final = {"tensor(float)": ("<f4", "fp32"), "tensor(float16)": ("<f2", "fp16")}

#: Bytes hashed at a time.
_BLOCK: Final = 1 << 24


class OnnxEncoder:
    """An encoder whose network is run by onnxruntime; see :class:`visleak.records.BatchEncoder`.

    Args:
        name: how the command line calls it.
        path: the ONNX file.
        recipe: how to prepare pictures for it.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        batch: pictures a call.

    Raises:
        MissingExtra: onnxruntime is not installed.
        UsageError: a device that is not there.
        VisleakError: the file is no network from pictures to vectors.
    """

    views = 1
    cohort: Float32 | None = None

    def __init__(
        self, name: str, path: Path, recipe: Recipe, device: str = "auto", batch: int = BATCH
    ) -> None:
        self.name = name
        self.thresholds = recipe.thresholds
        self.enough = recipe.enough
        self.preparation = recipe.preparation
        self.digest = _digest(path, recipe)
        self._recipe = recipe
        self._path = path
        self._session, self.device = _session(path, device)
        taken, self._output = _ends(path, self._session, recipe)
        self._input = taken.name
        self._type, self.precision = TYPES[taken.type]
        self._fixed = taken.shape[0] if isinstance(taken.shape[0], int) else 0
        self.batch = self._fixed or batch
        #: with its name, what another process needs to load it on a device of its own
        self.running_options = {"batch": batch}
        grey = np.full((*recipe.shape, 3), 128, np.uint8)
        self.width = self._tried(grey)

    def encode(self, pictures: Sequence[DecodedImage]) -> tuple[Float32, Bool]:
        """Return unit vectors (n, width) and whether each picture is flat (n,)."""
        prepared = [self.preparation(picture) for picture in pictures]
        parts = [
            self.forward(prepared[start : start + self.batch])
            for start in range(0, len(prepared), self.batch)
        ]
        vectors = np.concatenate(parts) if parts else np.empty((0, self.width), np.float32)
        return vectors, flat(pictures)

    def forward(self, prepared: Sequence[npt.NDArray[Any]]) -> Float32:
        """Return unit vectors (n, width) of prepared pictures, NaN where there are no numbers."""
        made = self._computed(np.stack(prepared), self.batch).astype(np.float64)
        if not self._recipe.normalise:
            return made.astype(np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", made, made))
        # what has no direction has no similarity either
        norms[norms == 0] = np.nan
        return np.asarray(made / norms[:, None], np.float32)

    def outputs(self, prepared: Sequence[npt.NDArray[Any]]) -> Float32:
        """Return what the network itself makes of prepared pictures, (n, width), of any length."""
        return np.asarray(self._computed(np.stack(prepared), self.batch), np.float32)

    def view(self, vectors: Float32, view: int) -> Float32:
        """Return the vectors as they are: there is no view but the original."""
        return vectors

    def _computed(self, pixels: npt.NDArray[np.uint8], size: int) -> npt.NDArray[Any]:
        """Return what the network makes of pixels (n, height, width, 3), fed as ``size`` rows.

        The sums of a network depend on the shape of its input: filled up to one size, a vector
        does not depend on how many came with its picture.
        """
        count = len(pixels)
        if size > count:
            pixels = np.concatenate([pixels, np.repeat(pixels[-1:], size - count, axis=0)])
        recipe = self._recipe
        if recipe.channels == "BGR":
            pixels = pixels[..., ::-1]
        scaled = pixels.astype(np.float32) / np.float32(255)
        scaled -= np.array(recipe.mean, np.float32)
        scaled /= np.array(recipe.std, np.float32)
        if recipe.layout == "NCHW":
            scaled = scaled.transpose(0, 3, 1, 2)
        fed = {self._input: np.ascontiguousarray(scaled, self._type)}
        return np.asarray(self._session.run([self._output], fed)[0])[:count]

    def _tried(self, pixels: npt.NDArray[np.uint8]) -> int:
        """Return the width of the vectors that the network makes of a picture."""
        try:
            made = self._computed(pixels[None], self._fixed)
        except Exception as error:
            raise VisleakError(
                f"{self._path} cannot be run on a picture of {pixels.shape[0]} x"
                f" {pixels.shape[1]} pixels ({_line(error)}); compare size, crop and layout in"
                " its json"
            ) from error
        if made.ndim != 2 or len(made) != 1 or made.dtype.kind != "f":
            raise VisleakError(
                f"output {self._output!r} of {self._path} is {made.dtype} {made.shape} for one"
                ' picture; it must be floats (1, width): name another "output" in its json, or'
                " flatten it before export"
            )
        length = float(np.linalg.norm(made.astype(np.float64)))
        if not self._recipe.normalise and not abs(length - 1) <= NORM_TOLERANCE:
            raise VisleakError(
                f"output {self._output!r} of {self._path} has length {length:.3g}, and its json"
                ' says "normalise": false; set it to true'
            )
        return int(made.shape[1])


def onnx_encoder(request: Request) -> OnnxEncoder:
    """Return the encoder of ``onnx:FILE[?prep=FILE.json&device=..&batch=..]``."""
    path = Path(request.wanted_argument("FILE"))
    request.knows("prep", "device", "batch")
    if not path.is_file():
        raise UsageError(f"no such ONNX file: {path}")
    recipe = recipe_of(request, path)
    device = request.options.get("device", "auto")
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", device):
        raise request.refused("device", "auto, cpu, cuda or cuda:N")
    batch = request.number("batch", BATCH)
    return OnnxEncoder(request.named("prep"), path, recipe, device, batch)


def recipe_of(request: Request, path: Path) -> Recipe:
    """Return how pictures are prepared for a file: as ``prep`` says, else ``FILE.json`` beside it.

    Raises:
        UsageError: there is no such file.
        VisleakError: it is no recipe.
    """
    told = request.options.get("prep")
    return read_recipe(Path(told) if told else path.with_name(f"{path.name}.json"))


def _session(path: Path, device: str) -> tuple[Any, str]:
    """Load a network; return it and where it runs."""
    onnxruntime = library("onnxruntime", "onnx", "the encoder onnx")
    onnxruntime.set_default_logger_severity(4)
    there = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    if device.startswith("cuda") and not there:
        raise UsageError(
            f"device {device} is not there: this onnxruntime runs on the CPU only; pip install"
            " onnxruntime-gpu, or leave the device out"
        )
    providers: list[Any] = ["CPUExecutionProvider"]
    if there and device != "cpu":
        number = int(device.partition(":")[2] or 0)
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": number}))
    try:
        session = onnxruntime.InferenceSession(str(path), providers=providers)
    except Exception as error:
        raise VisleakError(f"{path} cannot be loaded ({_line(error)})") from error
    runs = session.get_providers()[0]
    if device.startswith("cuda") and runs != "CUDAExecutionProvider":
        raise UsageError(f"device {device} cannot be used by onnxruntime; leave the device out")
    number = int(device.partition(":")[2] or 0)
    return session, f"cuda:{number}" if runs == "CUDAExecutionProvider" else "cpu"


def _ends(path: Path, session: Any, recipe: Recipe) -> tuple[Any, str]:
    """Return the network's input, and the name of its output."""
    inputs, outputs = list(session.get_inputs()), [each.name for each in session.get_outputs()]
    names = [each.name for each in inputs]
    if len(inputs) != 1 or recipe.input not in ("", names[0]):
        wanted = f"the one named {recipe.input!r}" if recipe.input else "one, the pictures"
        raise VisleakError(f"{path} takes {', '.join(names) or 'nothing'}; it must take {wanted}")
    taken = inputs[0]
    if taken.type not in TYPES or len(taken.shape) != 4:
        raise VisleakError(
            f"{path} takes {taken.type} of {len(taken.shape)} axes; it must take tensor(float) or"
            " tensor(float16) of 4, the first of them the batch"
        )
    if recipe.output and recipe.output not in outputs:
        raise VisleakError(
            f"{path} has no output {recipe.output!r}; its outputs are {', '.join(outputs)}"
        )
    if not recipe.output and len(outputs) != 1:
        raise VisleakError(
            f'{path} has several outputs: {", ".join(outputs)}; name the vectors as "output" in'
            " its json"
        )
    return taken, recipe.output or outputs[0]


def _digest(path: Path, recipe: Recipe) -> str:
    """Return the digest of the network, of the files that hold its weights, of the recipe."""
    hasher = hashlib.blake2b(json.dumps(recipe.as_dict(), sort_keys=True).encode(), digest_size=16)
    try:
        model = path.read_bytes()
        names = external_files(memoryview(model))
    except (ValueError, OSError) as error:
        raise VisleakError(f"{path} is no ONNX file ({error})") from error
    hasher.update(model)
    for name in names:
        beside = path.parent / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise VisleakError(f"{path} keeps weights in {name!r}, outside its folder")
        if not beside.is_file():
            raise VisleakError(f"{path} keeps weights in {beside}, and there is no such file")
        hasher.update(name.encode())
        with beside.open("rb") as file:
            while block := file.read(_BLOCK):
                hasher.update(block)
    return hasher.hexdigest()


def _line(error: Exception) -> str:
    """Return what onnxruntime says, in one line."""
    return " ".join(str(error).split())[:300]
