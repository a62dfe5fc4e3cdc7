"""Candidate images: many images per prompt, clusters of those that are nearly the same."""

from visleak.memorization.extraction.images import seeds_of
from visleak.memorization.extraction.run import Extraction, extract, read_extraction, reclustered
from visleak.memorization.extraction.similarity import CopySimilarity, load_similarity
from visleak.memorization.settings import ExtractSettings

__all__ = [
    "CopySimilarity",
    "ExtractSettings",
    "Extraction",
    "extract",
    "load_similarity",
    "read_extraction",
    "reclustered",
    "seeds_of",
]
