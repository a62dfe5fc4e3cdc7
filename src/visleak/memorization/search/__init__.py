"""Searches for prompts that a model answers with memorized images (Hong et al. 2024)."""

from visleak.memorization.search.augmentation import Augmented, AugmentSettings, augment
from visleak.memorization.search.diversity import diversify
from visleak.memorization.search.gibbs import GibbsSearch, GibbsSettings
from visleak.memorization.search.language_models import load_language_model
from visleak.memorization.search.presets import augment_preset, search_preset
from visleak.memorization.search.proposals import Rules
from visleak.memorization.search.random_words import RandomSettings, RandomWords
from visleak.memorization.search.recording import augment_into, diversify_into, search_into
from visleak.memorization.search.task import Budget, Candidate, Found, Progress, SearchTask

__all__ = [
    "AugmentSettings",
    "Augmented",
    "Budget",
    "Candidate",
    "Found",
    "GibbsSearch",
    "GibbsSettings",
    "Progress",
    "RandomSettings",
    "RandomWords",
    "Rules",
    "SearchTask",
    "augment",
    "augment_into",
    "augment_preset",
    "diversify",
    "diversify_into",
    "load_language_model",
    "search_into",
    "search_preset",
]
