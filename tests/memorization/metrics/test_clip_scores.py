"""CLIP scores of a small real model against the library alone; what names a model."""

from functools import partial

import numpy as np
import pytest

from refusals import refusal
from visleak.encoders.features import clip_request, clip_scores, load_alignment
from visleak.errors import UsageError, VisleakError

on_cpu = partial(load_alignment, device="cpu")

PROMPTS = ["a red circle", "a blue square", "the red square", "a circle of red"]


def by_library(folder, prompts, pictures):
    """Return the cosines in pairs as the library computes them, one pair at a time."""
    import torch
    from transformers import CLIPModel, PreTrainedTokenizerFast

    from visleak.encoders.weights import quiet

    with quiet():
        model = CLIPModel.from_pretrained(folder).eval()
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    scores = []
    for prompt, pixels in zip(prompts, pictures, strict=True):
        inputs = torch.from_numpy(pixels.transpose(2, 0, 1)[None].astype(np.float32) / 255)
        with torch.inference_mode():
            # what its logits are made of, before they are scaled
            made = model(
                input_ids=tokenizer(prompt, return_tensors="pt").input_ids,
                pixel_values=(inputs - 0.5) / 0.5,
            )
            scores.append(float(made.logits_per_image / model.logit_scale.exp()))
    return np.array(scores)


def test_scores_are_the_librarys(word_clip, small_pictures):
    """Cosines without a factor, of each image and its own prompt."""
    model = on_cpu(str(word_clip))
    pictures = small_pictures[:4]
    expected = by_library(word_clip, PROMPTS, pictures)
    found = clip_scores(model, PROMPTS, pictures)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.ptp(expected) > 1e-3, "scores that are all alike prove nothing"
    # turned around, other pairs are scored
    assert np.abs(clip_scores(model, PROMPTS[::-1], pictures) - expected).max() > 1e-3
    with pytest.raises(UsageError, match="got 1 prompts for 2 images"):
        clip_scores(model, PROMPTS[:1], pictures[:2])


def test_a_folder_that_says_nothing_of_pictures(word_clip, bare_clip, small_pictures):
    """It loads, at the size of its network; what was assumed is in the digest."""
    model, told = on_cpu(str(bare_clip)), on_cpu(str(word_clip))
    assert model.images(small_pictures).shape == (8, 12)
    # one network, two ways to prepare images
    np.testing.assert_array_equal(model.texts(PROMPTS), told.texts(PROMPTS))
    assert model.digest != told.digest


@pytest.mark.parametrize(
    ("spec", "name", "argument", "options"),
    [
        ("owner/name", "clip", "owner/name", {}),
        ("clip", "clip", "", {}),
        ("clip:owner/name?precision=fp16", "clip", "owner/name", {"precision": "fp16"}),
        ("open_clip:ViT-g-14/laion", "clip", "ViT-g-14/laion", {"backend": "open_clip"}),
        ("open_clip:ViT-g-14:/a/w.bin", "clip", "ViT-g-14:/a/w.bin", {"backend": "open_clip"}),
    ],
)
def test_what_a_text_stands_for(spec, name, argument, options):
    """Folder, hub, open_clip, or as encoders are named; what the text says goes before."""
    request = clip_request(spec, "cpu", "fp32")
    assert (request.name, request.argument) == (name, argument)
    assert dict(request.options) == {"device": "cpu", "precision": "fp32", **options}
    assert request.named(*request.options).startswith("clip")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("", "an alignment model is the folder or hub name (OWNER/NAME) of a CLIP"),
        ("sscd:some/file", "got 'sscd:some/file'"),
        ("open_clip", "needs MODEL/WEIGHTS after its name: open_clip:MODEL/WEIGHTS"),
        ("./nowhere", "there is no folder ./nowhere"),
    ],
)
def test_names_of_no_model(spec, said):
    assert said in refusal(VisleakError, on_cpu, spec)
