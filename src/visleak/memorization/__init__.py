"""Memorization: prompts for which a text-to-image model reproduces its training images.

The search half of MemBench (Hong et al. 2024): the trigger score D, searches for prompts that raise
it, images made of them, clusters among these, and the sources they are copies of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak.diffusion.model import (
        Conditioning,
        DiffusionModel,
        Guidance,
        Sampling,
        TokenModel,
        version_of,
    )
    from visleak.memorization.prompt_files import read_prompts
    from visleak.memorization.prompts import Prompts
    from visleak.memorization.scores import Scores, TriggerScore
    from visleak.memorization.settings import ScoreSettings

__all__ = [
    "Conditioning",
    "DiffusionModel",
    "Guidance",
    "Prompts",
    "Sampling",
    "ScoreSettings",
    "Scores",
    "TokenModel",
    "TriggerScore",
    "read_prompts",
    "version_of",
]

__getattr__, __dir__ = on_use(__name__)
