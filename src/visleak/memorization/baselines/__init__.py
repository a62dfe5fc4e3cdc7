"""Other searches for trigger prompts (table 2 of Hong et al. 2024), and how they compare."""

from visleak.memorization.baselines.gradients import load_causal
from visleak.memorization.baselines.run import Contest, Means, TracedImages, compare, load_searchers

__all__ = ["Contest", "Means", "TracedImages", "compare", "load_causal", "load_searchers"]
