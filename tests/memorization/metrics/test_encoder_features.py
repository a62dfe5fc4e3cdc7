"""Vectors that images are measured by: CLIP scores, networks' outputs, Inception's features."""

import warnings
from functools import partial

import numpy as np
import pytest
from PIL import Image

from refusals import refusal
from visleak.encoders import load_encoder
from visleak.encoders.features import (
    EncoderFeatures,
    clip_request,
    clip_scores,
    load_alignment,
    load_features,
    resized,
)
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


def test_networks_keep_their_lengths(word_clip, small_pictures):
    """Their outputs point where the encoder's vectors do, and the name says what they are."""
    found = load_features(f"clip:{word_clip}", device="cpu")
    rows = found.images(small_pictures)
    lengths = np.linalg.norm(rows, axis=1)
    assert np.abs(lengths - 1).min() > 1e-3
    encoder = load_encoder(f"clip:{word_clip}?device=cpu")
    units = EncoderFeatures(encoder)
    np.testing.assert_allclose(rows / lengths[:, None], units.images(small_pictures), atol=1e-6)
    assert (found.number, units.number) == ("outputs of the network", "vectors at unit length")
    assert found.digest != units.digest


def test_the_built_in_encoder_has_unit_vectors_only(natural):
    found = load_features("builtin", device="cpu")
    rows = found.images([natural["coins"], natural["coffee"]])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert found.images([]).shape == (0, found.width)
    with pytest.raises(UsageError, match="encoder builtin has vectors of unit length only"):
        EncoderFeatures(load_encoder("builtin"), unit=False)


def test_a_network_that_makes_no_vector(tmp_path, word_clip):
    """NaN would become the distance of the whole set."""
    import shutil

    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(word_clip, tmp_path / "clip")
    weights = load_file(folder / "model.safetensors")
    weights["visual_projection.weight"].fill_(float("inf"))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    found = load_features(f"clip:{folder}", device="cpu")
    with pytest.raises(VisleakError, match="makes no vector of 1 of 1 images; try precision="):
        found.images([np.zeros((16, 16, 3), np.uint8)])


@pytest.fixture(scope="module")
def inception_file(tmp_path_factory):
    """Return a file with the signature of FID's network, and little in it."""
    import torch

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            convolution = torch.nn.Conv2d(3, 5, 23, stride=23)
            self.layers = torch.nn.Sequential(convolution, torch.nn.AdaptiveAvgPool2d(1))

        def forward(self, x):
            return self.layers(x)

    torch.manual_seed(0)
    path, whole = tmp_path_factory.mktemp("inception") / "inception.pt", Whole()
    with warnings.catch_warnings():
        # torch asks for another format; FID's network is published in this one
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(whole).save(str(path))
        torch.jit.script(whole.layers).save(str(path.with_name("layers.pt")))
    return path


def by_pillow(plane):
    return Image.fromarray(plane.astype(np.float32)).resize((299, 299), Image.Resampling.BICUBIC)


def test_inception_is_fed_as_clean_fid_feeds_it(inception_file, natural):
    """Resized channel by channel in floating point, (x - 128) / 128, through ``layers``."""
    import torch

    pictures = [natural["chelsea"][:150, :200], natural["coins"][::2, ::3], natural["rocket"]]
    found = load_features(f"inception:{inception_file}?batch=2", device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        layers = torch.jit.load(str(inception_file)).layers
    expected = []
    for pixels in pictures:
        planes = [np.asarray(by_pillow(pixels[..., channel])).clip(0, 255) for channel in range(3)]
        x = torch.from_numpy(np.stack(planes)[None])
        with torch.inference_mode():
            expected.append(layers((x - 128) / 128).numpy().ravel())
    np.testing.assert_allclose(found.images(pictures), expected, atol=1e-5)
    assert found.width == 5
    assert found.images([]).shape == (0, 5)
    # bicubic filters overshoot: cut off, not wrapped around
    sharp = np.zeros((12, 12, 3), np.uint8)
    sharp[4:8] = 255
    assert resized(sharp).min() == 0
    assert resized(sharp).max() == 255
    raw = np.asarray(by_pillow(sharp[..., 0]))
    assert raw.min() < -1
    assert raw.max() > 256


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("inception", "features inception needs FILE after its name: inception:FILE"),
        ("inception:{}/none.pt", "there is no file {}/none.pt; get inception-2015"),
        ("inception:{}/layers.pt", "has no part 'layers'; get inception-2015-12-05"),
        ("inception:{}/inception.pt?prep=x", "features inception has no option 'prep'"),
        ("inceptio", "features are inception:FILE or an encoder (builtin, clip,"),
        ("builtin?device=cpu", "encoder builtin has no option 'device'"),
    ],
)
def test_features_that_cannot_be(inception_file, text, said):
    folder = str(inception_file.parent)
    message = refusal(VisleakError, load_features, text.replace("{}", folder), device="cpu")
    assert said.replace("{}", folder) in message
