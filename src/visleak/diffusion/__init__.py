"""Text-to-image diffusion models behind one protocol: pipelines of ``diffusers``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak.diffusion.loading import load_model
    from visleak.diffusion.model import Conditioning, DiffusionModel, Sampling, TokenModel

__all__ = ["Conditioning", "DiffusionModel", "Sampling", "TokenModel", "load_model"]
__getattr__, __dir__ = on_use(__name__)
