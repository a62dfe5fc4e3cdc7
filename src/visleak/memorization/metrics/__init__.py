"""What images of a prompt are judged by: copying, fit to the prompt, looks, distance as a set."""

from visleak.encoders.features import (
    ClipAlignment,
    clip_scores,
    load_alignment,
    load_features,
)
from visleak.memorization.metrics.aesthetic import Aesthetic, AestheticHead, load_aesthetic
from visleak.memorization.metrics.copying import (
    FolderByPrompt,
    against_references,
    copying,
    reference_performance,
)

__all__ = [
    "Aesthetic",
    "AestheticHead",
    "ClipAlignment",
    "FolderByPrompt",
    "against_references",
    "clip_scores",
    "copying",
    "load_aesthetic",
    "load_alignment",
    "load_features",
    "reference_performance",
]
