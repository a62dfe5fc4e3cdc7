"""Texts through open_clip, which needs a torchvision that fits; skipped with the reason else."""

from functools import partial

import numpy as np
import pytest
from tiny_models import OPEN_CLIP, write_open_clip

from toy_clip import lively
from visleak.encoders.vision_language import load_text_tower

on_cpu = partial(load_text_tower, device="cpu")

CONTEXT = 12
# the words are those of open_clip's own tokenizer
WORDS = {"context_length": CONTEXT, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2}
CONFIG = {**OPEN_CLIP, "text_cfg": WORDS}
#: Of a few words, of just as many as fit, of one more, of many; empty; twice.
SENTENCES = ["a photo of a cat.", "cat " * 10, "cat " * 11, "a dog & a cat " * 9, "", "DOG", "dog"]
CUT = [False, False, True, True, False, False, False]


@pytest.fixture(scope="module")
def folder(open_clip, tmp_path_factory):
    model = lively(open_clip.CLIP(**CONFIG), seed=0)
    return write_open_clip(tmp_path_factory.mktemp("texts") / "clip", model, CONFIG)


def by_library(open_clip, folder):
    import torch

    model, _, _ = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    with torch.inference_mode():
        tokens = [tokenizer([sentence]) for sentence in SENTENCES]
        rows = [model.eval().encode_text(each, normalize=True).numpy()[0] for each in tokens]
    return np.stack(rows)


@pytest.mark.parametrize("batch", [1, 4])
def test_vectors_are_open_clips(open_clip, folder, batch):
    tower = on_cpu(f"clip:{folder}?backend=open_clip", batch=batch)
    read = tower.encode(SENTENCES)
    np.testing.assert_allclose(read.matrix, by_library(open_clip, folder), atol=1e-6)
    assert read.cut.tolist() == CUT
    assert (tower.context, tower.name) == (CONTEXT, f"clip:{folder}?backend=open_clip")
    assert tower.logit_scale == pytest.approx(20.0)


def test_a_tower_that_looks_behind_the_end(open_clip, tmp_path):
    text = {**CONFIG["text_cfg"], "no_causal_mask": True, "pool_type": "last"}  # type: ignore[dict-item]
    config = {**CONFIG, "custom_text": True, "text_cfg": text}
    model = lively(open_clip.CustomTextCLIP(**{**CONFIG, "text_cfg": text}), 1)
    other = write_open_clip(tmp_path / "clip", model, config)
    read = on_cpu(f"clip:{other}?backend=open_clip").encode(SENTENCES)
    np.testing.assert_allclose(read.matrix, by_library(open_clip, other), atol=1e-6)
