"""Embeddings as files: writing them for others, and asking what is in them."""

from visleak.embedding.encode import Encoded, encode

__all__ = ["Encoded", "encode"]
