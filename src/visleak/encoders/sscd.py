"""``sscd``: the copy detection network of Pizzi et al. (2022), as published in TorchScript.

The published files (``sscd_disc_mixup.torchscript.pt`` and others) take images normalised as
ImageNet's and return one descriptor per image. A TorchScript file is a program of torch's own
operators, which may also read and write files: load only those of a maker whom you trust.
"""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from visleak.encoders.network import RUNNING, NetworkEncoder, Running, Tower, digest
from visleak.encoders.preprocessing import PixelPreparation, Preprocessing, Scaling
from visleak.encoders.request import Request
from visleak.errors import VisleakError, said
from visleak.lazy import library

if TYPE_CHECKING:
    import torch

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
    request.knows("resize", *RUNNING)
    resize = RESIZES[request.choice("resize", tuple(RESIZES), "288")]
    running = Running.asked(request)
    torch = library("torch", "torch", "encoder sscd")
    if not path.is_file():
        raise VisleakError(
            f"encoder sscd: there is no file {path}; get {NAME} as {HOME} says, then sscd:FILE"
        )
    with path.open("rb") as file:
        content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    script = load_script(torch, path, request.called, f"get {NAME} as {HOME} says")
    tower = Tower(
        script, lambda module, inputs: module(inputs), digest(content, {"network": "TorchScript"})
    )
    pixels = PixelPreparation(resize, (), _BILINEAR)
    try:
        return NetworkEncoder(
            request.named("resize"), tower, Preprocessing(pixels, _IMAGENET), running
        )
    except (RuntimeError, AttributeError, IndexError) as error:
        raise VisleakError(
            f"encoder sscd: {path} does not make a vector of an image ({said(error)}); it must"
            " take a batch (n, 3, height, width) and return (n, width)"
        ) from error


def load_script(torch: ModuleType, path: Path, what: str, advice: str) -> torch.jit.ScriptModule:
    """Return the network of a TorchScript file, in ``float32`` on the CPU."""
    try:
        with warnings.catch_warnings():
            # torch asks makers of new files for another format; these are published as they are
            warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch.jit")
            return torch.jit.load(str(path), map_location="cpu").float()
    except (RuntimeError, ValueError, OSError) as error:
        raise VisleakError(
            f"{what}: {path} is not TorchScript ({said(error)}); {advice}"
        ) from error
