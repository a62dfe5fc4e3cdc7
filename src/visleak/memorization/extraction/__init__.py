"""Candidate images: many images per prompt, clusters of those that are nearly the same."""

from visleak.memorization.extraction.document import Cluster, Extraction
from visleak.memorization.extraction.images import ImageStore, Job, images_of, seeds_of
from visleak.memorization.extraction.run import extract, read_extraction, reclustered
from visleak.memorization.extraction.similarity import CopySimilarity, load_similarity
from visleak.memorization.settings import ExtractSettings

__all__ = [
    "Cluster",
    "CopySimilarity",
    "ExtractSettings",
    "Extraction",
    "ImageStore",
    "Job",
    "extract",
    "images_of",
    "load_similarity",
    "read_extraction",
    "reclustered",
    "seeds_of",
]
