"""Searches for prompts that reproduce memorized images (Hong et al. 2024)."""

from visleak.memorization.search.driver import SearchTask
from visleak.memorization.search.gibbs import GibbsSearch, augment
from visleak.memorization.search.methods import RandomSettings, RandomWords
from visleak.memorization.search.proposals import Rules, load_language_model
from visleak.memorization.search.run import augment_into, diversify, diversify_into, search_into
from visleak.memorization.settings import AugmentSettings, Budget, GibbsSettings

__all__ = [
    "AugmentSettings",
    "Budget",
    "GibbsSearch",
    "GibbsSettings",
    "RandomSettings",
    "RandomWords",
    "Rules",
    "SearchTask",
    "augment",
    "augment_into",
    "diversify",
    "diversify_into",
    "load_language_model",
    "search_into",
]
