"""Embeddings as files: writing them, and searching them for images."""

from visleak.embedding.encoding import Encoded, encode
from visleak.embedding.finding import Found, Match, documents, find

__all__ = ["Encoded", "Found", "Match", "documents", "encode", "find"]
