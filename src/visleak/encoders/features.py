"""Vectors of images and texts that sets of images are measured by.

FID (Heusel et al. 2017) is of one network's features: those of ``inception-2015-12-05.pt``, which
NVIDIA published for StyleGAN and clean-fid uses. Images are prepared as clean-fid does it
(Parmar et al. 2022, "On aliased resizing and surprising subtleties in GAN evaluation"): each
channel resized to 299 x 299 by Pillow's bicubic filter in floating point, cut to 0 to 255, then
(x - 128) / 128. torchmetrics resizes otherwise, and its file is not TorchScript.

The CLIP score, how well an image fits its prompt, is the cosine of both unit vectors by one CLIP,
without the factors of 100 or 2.5 and without cutting off at 0; so do MemBench and its code
(ViT-g-14 of open_clip, ``laion2b_s12b_b42k``). Different networks give different numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from visleak.documents import digest_of
from visleak.encoders import ENCODERS, load_encoder
from visleak.encoders.clip import clip_encoder
from visleak.encoders.network import RUNNING, Running, load_script, torch_type
from visleak.encoders.request import Request, parse
from visleak.encoders.vision_language import TextTower, load_text_tower
from visleak.errors import UsageError, VisleakError, brief
from visleak.lazy import library
from visleak.records import Bytes8, DecodedImage, Encoder, Float32, Float64

SIDE: Final = 299  # side of the network's input
_ADVICE: Final = (
    "get inception-2015-12-05.pt, the TorchScript of StyleGAN that clean-fid downloads, or take"
    " another network by the name of an encoder"
)


class Inception:
    """Features of the network of FID, a TorchScript file: a program, whose maker is trusted."""

    number = "Inception-v3 features of 2015, images resized as clean-fid does"

    def __init__(self, path: Path, running: Running) -> None:
        self._torch = library("torch", "torch", "the features inception")
        script, content = load_script(self._torch, path, "features inception", _ADVICE)
        layers = getattr(script, "layers", None)
        if layers is None:
            raise VisleakError(f"features inception: {path} has no part 'layers'; {_ADVICE}")
        about = {"network": "inception", "precision": running.precision, "prepared": "clean-fid 1"}
        self.name = f"inception:{path}"
        self.digest = digest_of([content, about])
        self._batch, self._device = running.batch, running.device
        self._dtype = torch_type(self._torch, running.precision)
        self._layers = layers.eval().to(device=running.device, dtype=self._dtype)
        try:
            self.width = self._run(np.zeros((1, 3, SIDE, SIDE), np.float32)).shape[1]
        except (RuntimeError, IndexError, AttributeError) as error:
            raise VisleakError(
                f"features inception: {path} does not take images of {SIDE} x {SIDE} pixels"
                f" ({brief(error)}); {_ADVICE}"
            ) from error

    def images(self, pixels: Sequence[Bytes8]) -> Float64:
        """Return features (n, width), of any length."""
        parts = [np.empty((0, self.width))]
        for start in range(0, len(pixels), self._batch):
            some = [resized(each) for each in pixels[start : start + self._batch]]
            # filled up with the last image: a vector depends on the size of its batch
            full = [*some, *[some[-1]] * (self._batch - len(some))]
            parts.append(self._run(np.stack(full))[: len(some)].astype(np.float64))
        return np.concatenate(parts)

    def _run(self, pixels: Float32) -> Float32:
        torch = self._torch
        with torch.inference_mode():
            inputs = (torch.from_numpy(pixels).to(self._device) - 128.0) / 128.0
            made = self._layers(inputs.to(self._dtype))
            return np.asarray(made.flatten(1).float().cpu().numpy(), np.float32)


def resized(pixels: Bytes8) -> Float32:
    """Return an image as clean-fid resizes it, (3, 299, 299), 0 to 255."""
    channels = pixels.transpose(2, 0, 1).astype(np.float32)
    size, bicubic = (SIDE, SIDE), Image.Resampling.BICUBIC
    planes = [np.asarray(Image.fromarray(plane).resize(size, bicubic)) for plane in channels]
    return np.asarray(np.stack(planes).clip(0, 255), np.float32)


CHUNK: Final = 64  # images that are handed on at a time; only bounds memory
INCEPTION: Final = "inception"  # what loads an Inception network of a file, as encoders are named
#: Encoders that do not have all options of a network, and those they have.
_FEWER: Final[Mapping[str, tuple[str, ...]]] = {
    "builtin": (),
    "phash": (),
    "pdq": (),
    "onnx": ("device",),
}


class ImageFeatures(Protocol):
    """From images to vectors."""

    name: str  #: as the command line calls it
    number: str  #: what its vectors are, in words
    digest: str  #: changes whenever any vector could
    width: int  #: numbers per image

    def images(self, pixels: Sequence[Bytes8]) -> Float64:
        """Return vectors (n, width) of images, ``uint8`` (height, width, 3) of any sizes."""


class EncoderFeatures:
    """The vectors of an encoder, at unit length or as its network's outputs."""

    def __init__(self, encoder: Encoder, *, unit: bool = True) -> None:
        if not unit and not _has_lengths(encoder):
            raise UsageError(f"encoder {encoder.name} has vectors of unit length only")
        self.encoder, self.unit = encoder, unit
        self.name, self.width = encoder.name, encoder.width
        self.number = "vectors at unit length" if unit else "outputs of the network"
        self.digest = encoder.digest + ("" if unit else " outputs") + precision_note(encoder)

    def images(self, pixels: Sequence[Bytes8]) -> Float64:
        """Return vectors (n, width), see :class:`ImageFeatures`."""
        network: Any = self.encoder
        parts = [np.empty((0, self.width))]
        for start in range(0, len(pixels), CHUNK):
            block = pixels[start : start + CHUNK]
            some = [DecodedImage(each, each.shape[1], each.shape[0]) for each in block]
            if self.unit:
                made = network.encode(some)[0]
            else:
                made = network.outputs([network.preparation(each) for each in some])
            parts.append(np.asarray(made, np.float64))
        rows = np.concatenate(parts)
        if wrong := int((~np.isfinite(rows).all(axis=1)).sum()):
            raise VisleakError(
                f"model {self.name} makes no vector of {wrong} of {len(rows)} images; try"
                " precision=fp32"
            )
        return rows


def _has_lengths(encoder: Encoder) -> bool:
    return hasattr(encoder, "outputs") and hasattr(encoder, "preparation")


def precision_note(model: object) -> str:
    """Return the part of a digest that names half precision; empty for fp32."""
    precision = getattr(model, "precision", "fp32")
    return "" if precision == "fp32" else f" {precision}"


def load_features(text: str, *, device: str = "auto", precision: str = "fp32") -> ImageFeatures:
    """Return what makes the vectors that sets of images are compared by, such as ``dinov2``.

    ``inception:FILE`` is the network of FID in TorchScript (:class:`Inception`). Of networks the
    outputs are taken as they are; other encoders have vectors of unit length only. ``device`` is
    ``auto``, ``cpu``, ``cuda:N`` or ``mps``; ``precision`` ``fp32``, ``fp16``, ``bf16`` or
    ``auto``.
    """
    request = parse(text, "features")
    if request.name == INCEPTION:
        request.allow_only(*RUNNING)
        path = Path(request.wanted_argument("FILE")).expanduser()
        whole = replace(request, options=options_of(request, device, precision))
        return Inception(path, Running.of(whole))
    if request.name not in ENCODERS:
        raise UsageError(
            f"features are inception:FILE or an encoder ({', '.join(ENCODERS)}); got {text!r}"
        )
    encoder = load_encoder(text, **options_of(request, device, precision))
    return EncoderFeatures(encoder, unit=not _has_lengths(encoder))


def options_of(request: Request, device: str, precision: str) -> dict[str, str]:
    """Return the options of a model: its text's own, and where those are silent, those given.

    >>> options_of(parse("clip?device=cuda:1"), "cpu", "fp32")
    {'device': 'cuda:1', 'precision': 'fp32'}
    """
    known = _FEWER.get(request.name, ("device", "precision"))
    given = {"device": device, "precision": precision}
    return {**{name: given[name] for name in known}, **request.options}


#: What MemBench's aesthetic scores are made of.
AESTHETIC_CLIP: Final = "clip:openai/clip-vit-large-patch14"
_OPEN_CLIP: Final = "open_clip"


class Alignment(Protocol):
    """A model of images and texts."""

    name: str  #: as the command line calls it
    digest: str  #: changes whenever any of its numbers could

    def texts(self, prompts: Sequence[str]) -> Float64:
        """Return unit rows (n, width) of texts."""

    def images(self, pixels: Sequence[Bytes8]) -> Float64:
        """Return unit rows (n, width) of images, ``uint8`` (height, width, 3) of any sizes."""


class ClipAlignment:
    """A CLIP as an :class:`Alignment`; ``encoder`` makes the vectors of images, of sets as well."""

    number = "cosine of unit vectors of image and text, without a factor"

    def __init__(self, tower: TextTower, encoder: Encoder) -> None:
        self.encoder, self._tower = encoder, tower
        self._features = EncoderFeatures(encoder)
        self.name, self.width = encoder.name, encoder.width
        self.digest = digest_of([tower.digest, self._features.digest + precision_note(tower)])

    def texts(self, prompts: Sequence[str]) -> Float64:
        """Return unit rows (n, width) of texts; one that is too long is cut."""
        if not len(prompts):
            return np.empty((0, self.width))
        return unit(self._tower.encode(list(prompts)).matrix)

    def images(self, pixels: Sequence[Bytes8]) -> Float64:
        """Return unit rows (n, width) of images."""
        return unit(self._features.images(pixels))


def load_alignment(spec: str, device: str = "auto", precision: str = "fp32") -> ClipAlignment:
    """Return the model of images and texts that a text names.

    That is the folder or hub name (``OWNER/NAME``) of a CLIP of transformers; ``open_clip:`` and
    ``MODEL/WEIGHTS``, ``MODEL:FILE``, ``hf-hub:OWNER/NAME`` or a folder; or ``clip:...`` as
    encoders are named. Options follow a ``?``, such as ``?batch=64``. A folder that says nothing of
    how images are prepared is taken to do so as CLIP's own processor does. Half precision on a GPU
    gives other numbers, and another digest.
    """
    request = clip_request(spec, device, precision)
    # texts first: fetching their tokenizer may bring newer weights, which the images share then
    tower = load_text_tower(request.named(*request.options))
    return ClipAlignment(tower, clip_encoder(request, assumed=True))


def clip_request(spec: str, device: str, precision: str) -> Request:
    """Return the request for a CLIP that a text stands for, see :func:`load_alignment`.

    >>> clip_request("open_clip:ViT-g-14:weights.bin", "cpu", "fp32").options["backend"]
    'open_clip'
    """
    # a folder may have any name
    whole = Path(spec).expanduser().is_dir()
    request = Request(spec, "clip", spec) if spec and whole else parse(spec, "encoder")
    if request.name == _OPEN_CLIP:
        request.wanted_argument("MODEL/WEIGHTS")
        request = replace(request, options={"backend": _OPEN_CLIP, **request.options})
    elif request.name != "clip":
        # what cannot be a name on the hub, or is another encoder
        if request.argument or "/" not in request.name:
            raise UsageError(
                "an alignment model is the folder or hub name (OWNER/NAME) of a CLIP,"
                f" open_clip:MODEL/WEIGHTS or clip:...; got {request.text!r}"
            )
        request = replace(request, argument=spec.rpartition("?")[0] if request.options else spec)
    request = replace(request, name="clip")
    return replace(request, options=options_of(request, device, precision))


def clip_scores(alignment: Alignment, prompts: Sequence[str], pixels: Sequence[Bytes8]) -> Float64:
    """Return the CLIP score, a cosine from -1 to 1, of each image with its own prompt, (n,)."""
    if len(prompts) != len(pixels):
        raise UsageError(
            f"a CLIP score is of an image and its prompt; got {len(prompts)} prompts for"
            f" {len(pixels)} images"
        )
    return cosines(alignment.texts(prompts), alignment.images(pixels))


def cosines(texts: npt.ArrayLike, images: npt.ArrayLike) -> Float64:
    """Return the cosines of unit rows in pairs, (n,)."""
    one, other = np.asarray(texts, np.float64), np.asarray(images, np.float64)
    return np.asarray(np.clip(np.einsum("ij,ij->i", one, other), -1.0, 1.0))


def unit(rows: npt.NDArray[np.floating]) -> Float64:
    """Return rows that are of unit length up to rounding, at unit length in ``float64``."""
    made = np.asarray(rows, np.float64)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True))
