"""``onnx:FILE``: a network in an ONNX file; ``FILE.json`` describes its preprocessing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from visleak.documents import read_document
from visleak.encoders.network import BatchedEncoder
from visleak.encoders.preprocessing import PixelPreparation
from visleak.encoders.request import Request, stated_thresholds
from visleak.errors import UsageError, VisleakError, one_line
from visleak.lazy import library
from visleak.records import Float32
from visleak.vectors import NORM_TOLERANCE

if TYPE_CHECKING:
    import onnxruntime

KIND: Final = "onnx encoder"  # kind of the JSON file, and the version of its layout
SCHEMA: Final = 1
#: Names of Pillow's filters.
INTERPOLATIONS: Final = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4}
#: Values of the fields that take one of some words.
WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "resize": ("squash", "short-side"),
    "interpolation": tuple(INTERPOLATIONS),
    "rounding": ("floor", "even"),
    "channels": ("RGB", "BGR"),
    "layout": ("NCHW", "NHWC"),
}
LARGEST: Final = 4096  # largest side in pixels


@dataclass(frozen=True)
class Recipe:
    """How images are prepared for a network, and what its vectors mean."""

    size: tuple[int, ...]  # (height, width) or, for short-side, (short,), in pixels
    mean: tuple[float, ...]  # of the channels in the network's order, for values from 0 to 1
    std: tuple[float, ...]
    resize: str = "squash"  # squash changes the aspect ratio, short-side keeps it
    crop: tuple[int, ...] = ()  # (height, width) about the centre, or empty
    interpolation: str = "bicubic"  # a filter of Pillow
    rounding: str = "floor"  # where an odd crop begins: floor, or even as torchvision rounds
    channels: str = "RGB"  # their order
    layout: str = "NCHW"  # order of the network's axes
    input: str = ""  # names in the network; empty if it has only one
    output: str = ""
    normalise: bool = True  # the network's vectors have yet to be made unit length
    # a JPEG may be decoded at a half, a quarter or an eighth as long as its short side keeps this
    # many pixels; 0 decodes all
    enough: int = 0
    # {"hard": .., "soft": .., "provenance": ..} or None
    thresholds: Mapping[str, object] | None = None

    @property
    def preparation(self) -> PixelPreparation:
        """The part that is done where an image is decoded."""
        return PixelPreparation(
            self.size, self.crop, INTERPOLATIONS[self.interpolation], self.rounding
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the network's input."""
        height, width = self.crop or self.size
        return height, width

    def as_dict(self) -> dict[str, object]:
        """Return the content of the file that :func:`read_recipe` reads as this recipe."""
        plain = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
            if value not in ((), "", None)
        }
        if len(self.size) == 1:
            plain["size"] = self.size[0]
        return {"visleak": KIND, "schema": SCHEMA, **plain}


def read_recipe(path: Path) -> Recipe:
    """Return the recipe in a file."""
    if not path.is_file():
        raise UsageError(
            f"no such file: {path}; it says how images are prepared for the network"
            " (docs/encoders.md), another one is named by ?prep=FILE.json"
        )
    content = read_document(path, KIND, SCHEMA, "see docs/encoders.md", key="visleak")
    given = {k: v for k, v in content.items() if k not in ("visleak", "schema", "about")}
    try:
        return _recipe(given)
    except ValueError as error:
        raise VisleakError(f"{path}: {error}") from error


def _recipe(given: Mapping[str, object]) -> Recipe:
    known = [each.name for each in fields(Recipe)]
    for name in given:
        if name not in known:
            raise ValueError(f"{name!r} is not known; known are {', '.join(known)}, about")
    for name in ("size", "mean", "std"):
        if name not in given:
            raise ValueError(f"{name} is missing")
    values = {name: _value(name, value) for name, value in given.items()}
    if values.get("resize") == "short-side":
        if len(set(values["size"])) > 1 or not values.get("crop"):
            raise ValueError(
                "resize short-side takes one number as size, and a crop: all images must come"
                " out in one shape"
            )
        values["size"] = values["size"][:1]
    if min(values["std"]) <= 0:
        raise ValueError(f"std must be above 0; got {list(values['std'])}")
    return Recipe(**values)


def _value(name: str, value: object) -> Any:
    """Return a value of the file as the recipe holds it; raise ValueError if it is invalid."""
    made = tuple(value) if isinstance(value, list) else value
    if name == "thresholds":
        return stated_thresholds(value)
    if name == "crop" and value is None:
        return ()
    if name in ("size", "crop"):
        made = made if isinstance(made, tuple) else (made, made)
        valid = len(made) == 2 and all(_is_count(side) and side > 0 for side in made)
        wanted = f"a number of pixels up to {LARGEST}, or [height, width]"
    elif name in ("mean", "std"):
        numbers = made if isinstance(made, tuple) else ()
        valid = len(numbers) == 3 and all(type(n) in (int, float) and abs(n) < 1e6 for n in numbers)
        wanted, made = "three numbers, one per channel", tuple(map(float, numbers if valid else ()))
    elif name == "normalise":
        valid, wanted = isinstance(value, bool), "true or false"
    elif name == "enough":
        valid, wanted = _is_count(value), f"a number of pixels from 0 to {LARGEST}"
    else:
        words = WORDS.get(name)
        valid = isinstance(value, str) and (words is None or value in words)
        wanted = f"one of {', '.join(words)}" if words else "a name"
    if not valid:
        raise ValueError(f"{name} must be {wanted}; got {value!r}")
    return made


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


BATCH: Final = 32  # images per call of the network by default
#: Input types of networks: ONNX's word, numpy's, and our precision.
TYPES: Final = {"tensor(float)": ("<f4", "fp32"), "tensor(float16)": ("<f2", "fp16")}
_BLOCK: Final = 1 << 24  # bytes hashed at a time


class OnnxEncoder(BatchedEncoder):
    """An encoder whose network is run by onnxruntime."""

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
        taken, self._output = _input_output(path, self._session, recipe)
        self._input = taken.name
        self._type, self.precision = TYPES[taken.type]
        self._fixed = taken.shape[0] if isinstance(taken.shape[0], int) else 0
        self.batch = self._fixed or batch
        #: with its name, what another process needs to load it on a device of its own
        self.running_options = {"batch": batch}
        self.width = self._tried(np.full((*recipe.shape, 3), 128, np.uint8))

    def forward(self, prepared: Sequence[npt.NDArray[np.generic]]) -> Float32:
        """Return unit vectors (n, width) of prepared images, NaN where there is no direction."""
        return super().forward(prepared) if self._recipe.normalise else self.outputs(prepared)

    def outputs(self, prepared: Sequence[npt.NDArray[np.generic]]) -> Float32:
        """Return the network's outputs (n, width) for prepared images, of any length."""
        return np.asarray(self._run(np.stack(prepared), self.batch), np.float32)

    def _run(self, pixels: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.generic]:
        """Return the outputs for pixels (n, height, width, 3), run as ``size`` rows.

        The sums of a network depend on the shape of its input, so it is filled up to one size.
        """
        count, recipe = len(pixels), self._recipe
        if size > count:
            pixels = np.concatenate([pixels, np.repeat(pixels[-1:], size - count, axis=0)])
        if recipe.channels == "BGR":
            pixels = pixels[..., ::-1]
        scaled = pixels.astype(np.float32) / np.float32(255)
        scaled -= np.array(recipe.mean, np.float32)
        scaled /= np.array(recipe.std, np.float32)
        if recipe.layout == "NCHW":
            scaled = scaled.transpose(0, 3, 1, 2)
        inputs = {self._input: np.ascontiguousarray(scaled, self._type)}
        return np.asarray(self._session.run([self._output], inputs)[0])[:count]

    def _tried(self, pixels: npt.NDArray[np.uint8]) -> int:
        """Return the width of the vectors, from the output for one image."""
        try:
            made = self._run(pixels[None], self._fixed)
        except Exception as error:
            raise VisleakError(
                f"{self._path} cannot be run on an image of {pixels.shape[0]} x"
                f" {pixels.shape[1]} pixels ({one_line(error)}); compare size, crop and layout in"
                " its json"
            ) from error
        if made.ndim != 2 or len(made) != 1 or made.dtype.kind != "f":
            raise VisleakError(
                f"output {self._output!r} of {self._path} is {made.dtype} {made.shape} for one"
                ' image; it must be floats (1, width): name another "output" in its json, or'
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
    request.allow_only("prep", "device", "batch")
    if not path.is_file():
        raise UsageError(f"no such ONNX file: {path}")
    recipe = recipe_of(request, path)
    device = request.options.get("device", "auto")
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", device):
        raise request.refused("device", "auto, cpu, cuda or cuda:N")
    batch = request.number("batch", BATCH)
    return OnnxEncoder(request.named("prep"), path, recipe, device, batch)


def recipe_of(request: Request, path: Path) -> Recipe:
    """Return the recipe of a network: that of the option ``prep``, or of ``FILE.json``."""
    given = request.options.get("prep")
    return read_recipe(Path(given) if given else path.with_name(f"{path.name}.json"))


def _session(path: Path, device: str) -> tuple[onnxruntime.InferenceSession, str]:
    onnxruntime = library("onnxruntime", "onnx", "the encoder onnx")
    onnxruntime.set_default_logger_severity(4)
    has_gpu = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    if device.startswith("cuda") and not has_gpu:
        raise UsageError(
            f"device {device} is not there: this onnxruntime runs on the CPU only; pip install"
            " onnxruntime-gpu, or leave the device out"
        )
    number = int(device.partition(":")[2] or 0)
    providers: list[str | tuple[str, dict[str, int]]] = ["CPUExecutionProvider"]
    if has_gpu and device != "cpu":
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": number}))
    try:
        session = onnxruntime.InferenceSession(str(path), providers=providers)
    except Exception as error:
        raise VisleakError(f"{path} cannot be loaded ({one_line(error)})") from error
    on_gpu = session.get_providers()[0] == "CUDAExecutionProvider"
    if device.startswith("cuda") and not on_gpu:
        raise UsageError(f"device {device} cannot be used by onnxruntime; leave the device out")
    return session, f"cuda:{number}" if on_gpu else "cpu"


def _input_output(
    path: Path, session: onnxruntime.InferenceSession, recipe: Recipe
) -> tuple[onnxruntime.NodeArg, str]:
    inputs, outputs = list(session.get_inputs()), [each.name for each in session.get_outputs()]
    names = [each.name for each in inputs]
    if len(inputs) != 1 or recipe.input not in ("", names[0]):
        wanted = f"the one named {recipe.input!r}" if recipe.input else "one, the images"
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
    """Return the digest of the network, of the files that hold its weights, and of the recipe."""
    hasher = hashlib.blake2b(json.dumps(recipe.as_dict(), sort_keys=True).encode(), digest_size=16)
    try:
        model = path.read_bytes()
        names = external_files(memoryview(model))
    except (ValueError, OSError) as error:
        raise VisleakError(f"{path} is not an ONNX file ({error})") from error
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


#: Fields of the messages of an ONNX file (github.com/onnx/onnx, onnx.proto) that lead to tensors:
#: message -> number of a field -> message.
_FIELDS: Final[Mapping[str, Mapping[int, str]]] = {
    "Model": {7: "Graph", 25: "Function"},
    "Function": {7: "Node"},
    "Graph": {1: "Node", 5: "Tensor", 15: "SparseTensor"},
    "Node": {5: "Attribute"},
    "Attribute": {
        **{5: "Tensor", 10: "Tensor", 6: "Graph", 11: "Graph"},
        **{22: "SparseTensor", 23: "SparseTensor"},
    },
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
    "Tensor": {13: "Entry"},
}
_DEEPEST: Final = 100  # graphs may be nested; no honest file goes deeper


def external_files(model: memoryview) -> tuple[str, ...]:
    """Return the names of the files that hold tensors of a model, sorted, as it states them.

    Models over 2 GB, or of torch's newer exporter, have them. The protocol buffer is read without
    any library.

    >>> external_files(memoryview(b""))
    ()
    """
    return tuple(sorted(set(_names(model, "Model", 0))))


def _names(message: memoryview, kind: str, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise ValueError("its graphs are nested too deeply")
    for number, value in _fields(message):
        inner = _FIELDS[kind].get(number)
        if inner == "Entry":
            entry = dict(_fields(value))
            if bytes(entry.get(1, b"")) == b"location":
                yield str(bytes(entry.get(2, b"")), "utf-8")
        elif inner is not None:
            yield from _names(value, inner, depth + 1)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield number and content of the fields that have a length."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        field, kind = key >> 3, key & 7
        if kind == 0:
            _, at = _varint(message, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind == 2:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise ValueError("it ends too early")
            yield field, message[at : at + length]
            at += length
        else:
            raise ValueError(f"a field of kind {kind}")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return the number of variable length at a byte, and the position after it."""
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number does not end")
