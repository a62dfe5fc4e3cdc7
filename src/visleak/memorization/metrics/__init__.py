"""What images of a prompt are judged by: copying, fit to the prompt, looks, distance as a set."""

from visleak.memorization.metrics.aesthetic import (
    Aesthetic,
    AestheticHead,
    Spread,
    load_aesthetic,
    spread,
)
from visleak.memorization.metrics.copying import (
    Best,
    Copying,
    FolderByPrompt,
    ImagesByPrompt,
    ReferencePerformance,
    against_references,
    copying,
    reference_performance,
)
from visleak.memorization.metrics.distances import KernelDistance, frechet_distance, kernel_distance
from visleak.memorization.metrics.features import (
    Alignment,
    ClipAlignment,
    ImageFeatures,
    clip_scores,
    load_alignment,
    load_features,
)

__all__ = [
    "Aesthetic",
    "AestheticHead",
    "Alignment",
    "Best",
    "ClipAlignment",
    "Copying",
    "FolderByPrompt",
    "ImageFeatures",
    "ImagesByPrompt",
    "KernelDistance",
    "ReferencePerformance",
    "Spread",
    "against_references",
    "clip_scores",
    "copying",
    "frechet_distance",
    "kernel_distance",
    "load_aesthetic",
    "load_alignment",
    "load_features",
    "reference_performance",
    "spread",
]
