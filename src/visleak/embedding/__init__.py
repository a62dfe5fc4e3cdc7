"""Embeddings as files: writing them for others, and asking what is in them."""

from visleak.embedding.encoding import Encoded, encode
from visleak.embedding.finding import Found, Match, documents, find

__all__ = ["Encoded", "Found", "Match", "documents", "encode", "find"]
