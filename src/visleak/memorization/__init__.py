"""Memorization: which prompts make a text-to-image model replay its training images?

The search half of MemBench (Hong et al. 2024): the trigger score D, searches for prompts that raise
it, images made of them, clusters among these, and the sources they are copies of.
"""

from visleak.memorization.model import Conditioning, DiffusionModel, Sampling, TokenModel
from visleak.memorization.prompt_files import read_prompts
from visleak.memorization.prompts import Prompts
from visleak.memorization.scores import Scores, ScoreSettings, TriggerScore

__all__ = [
    "Conditioning",
    "DiffusionModel",
    "Prompts",
    "Sampling",
    "ScoreSettings",
    "Scores",
    "TokenModel",
    "TriggerScore",
    "read_prompts",
]
