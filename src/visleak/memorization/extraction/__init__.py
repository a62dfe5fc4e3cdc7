"""Candidate images: many images a prompt, clusters of those that come out nearly the same."""

from visleak.memorization.extraction.generating import Conditioned, Job, images_of, seeds_of
from visleak.memorization.extraction.image_store import ImageStore
from visleak.memorization.extraction.records import Cluster, Extraction, ExtractSettings
from visleak.memorization.extraction.run import extract, reclustered
from visleak.memorization.extraction.similarities import load_similarity
from visleak.memorization.extraction.similarity import CopySimilarity
from visleak.memorization.extraction.stored import read_extraction

__all__ = [
    "Cluster",
    "Conditioned",
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
