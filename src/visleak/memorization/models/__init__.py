"""Diffusion models behind one protocol: pipelines of ``diffusers``."""

from __future__ import annotations

from visleak.memorization.models.loading import load_model

__all__ = ["load_model"]
