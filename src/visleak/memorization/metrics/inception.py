"""The network of FID: Inception-v3 of 2015, from a TorchScript file that the user has.

FID (Heusel et al. 2017) is of one network's features: those of ``inception-2015-12-05.pt``, which
NVIDIA published for StyleGAN and clean-fid uses. Pictures are prepared as clean-fid does it
(Parmar et al. 2022, "On aliased resizing and surprising subtleties in GAN evaluation"): each
channel resized to 299 x 299 by Pillow's bicubic filter in floating point, cut to 0 to 255, then
(x - 128) / 128. torchmetrics resizes otherwise, and its file is no TorchScript.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from visleak.encoders.libraries import library, said
from visleak.encoders.network import Running, digest
from visleak.encoders.sscd import load_script
from visleak.errors import VisleakError
from visleak.records import Bytes8, Float32

Float64 = npt.NDArray[np.float64]

#: Side of the network's input.
SIDE: Final = 299

_ADVICE: Final = (
    "get inception-2015-12-05.pt, the TorchScript of StyleGAN that clean-fid downloads, or take"
    " another network by the name of an encoder"
)


class Inception:
    """Features of the network of FID.

    Args:
        path: the TorchScript file, which is a program: one whose maker is trusted.
        running: where and how it runs.

    Raises:
        MissingExtra: torch is not installed.
        VisleakError: there is no such file, or it is no such network.
    """

    number = "Inception-v3 features of 2015, pictures resized as clean-fid does"

    def __init__(self, path: Path, running: Running) -> None:
        self._torch = library("torch", "torch", "the features inception")
        if not path.is_file():
            raise VisleakError(f"features inception: there is no file {path}; {_ADVICE}")
        with path.open("rb") as file:
            content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
        script = load_script(self._torch, path, "features inception", _ADVICE)
        layers = getattr(script, "layers", None)
        if layers is None:
            raise VisleakError(f"features inception: {path} has no part 'layers'; {_ADVICE}")
        about = {"network": "inception", "precision": running.precision, "prepared": "clean-fid 1"}
        self.name = f"inception:{path}"
        self.digest = digest(content.hexdigest(), about)
        self._batch, self._device = running.batch, running.device
        dtypes = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
        self._dtype = getattr(self._torch, dtypes[running.precision])
        self._layers = layers.eval().to(device=running.device, dtype=self._dtype)
        try:
            self.width = self._run(np.zeros((1, 3, SIDE, SIDE), np.float32)).shape[1]
        except (RuntimeError, IndexError, AttributeError) as error:
            raise VisleakError(
                f"features inception: {path} does not take pictures of {SIDE} x {SIDE} pixels"
                f" ({said(error)}); {_ADVICE}"
            ) from error

    def images(self, pictures: Sequence[Bytes8]) -> Float64:
        """Return features (n, width), of any length."""
        parts = [np.empty((0, self.width))]
        for start in range(0, len(pictures), self._batch):
            some = [resized(each) for each in pictures[start : start + self._batch]]
            # filled up with the last picture: a vector depends on the size of its batch
            full = [*some, *[some[-1]] * (self._batch - len(some))]
            parts.append(self._run(np.stack(full))[: len(some)].astype(np.float64))
        return np.concatenate(parts)

    def _run(self, pixels: Float32) -> Float32:
        torch = self._torch
        with torch.inference_mode():
            inputs = (torch.from_numpy(pixels).to(self._device) - 128.0) / 128.0
            made: Any = self._layers(inputs.to(self._dtype))
            return np.asarray(made.flatten(1).float().cpu().numpy(), np.float32)


def resized(picture: Bytes8) -> Float32:
    """Return a picture as clean-fid resizes it, (3, 299, 299), 0 to 255."""
    planes = [
        np.asarray(
            Image.fromarray(picture[..., channel].astype(np.float32)).resize(
                (SIDE, SIDE), Image.Resampling.BICUBIC
            )
        )
        for channel in range(3)
    ]
    return np.asarray(np.stack(planes).clip(0, 255), np.float32)
