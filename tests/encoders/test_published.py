"""Thresholds by name, without weights."""

from __future__ import annotations

import subprocess
import sys

import pytest

from visleak.encoders.request import published


@pytest.mark.parametrize(
    "text",
    [
        *("clip", "clip?device=cpu&batch=3", "clip:openai/clip-vit-base-patch32"),
        *("clip?prep=laion", "clip?backend=open_clip", "clip:ViT-B-32/openai?backend=open_clip"),
    ],
)
def test_the_papers_network_has_the_papers_thresholds(text):
    found = published(text)
    assert (found["hard"], found["soft"]) == (0.98, 0.95)
    assert found["provenance"].startswith("Ramos et al. 2025")


@pytest.mark.parametrize(
    "text",
    [
        *("clip:openai/clip-vit-large-patch14", "clip:laion/CLIP-ViT-B-32-laion2B-s34B-b79K"),
        *("clip:/some/folder", "clip?prep=laion-nojpeg", "dinov2", "builtin", "clipper"),
        "clip:ViT-B-32/laion2b_s34b_b79k?backend=open_clip",
    ],
)
def test_nobody_elses_are_lent(text):
    assert published(text) is None


def test_they_are_read_without_heavy_libraries():
    code = (
        "import sys; from visleak.encoders.request import published; published('clip');"
        "print([m for m in ('torch', 'transformers', 'cv2', 'PIL') if m in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"
