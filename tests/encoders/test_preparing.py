"""Preprocessing against the libraries' own, to the bit."""

import json
from importlib import import_module

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from refusals import refusal
from visleak.encoders import preprocessing
from visleak.encoders.preprocessing import (
    KINDS,
    LAION_SIDE,
    PixelPreparation,
    as_laion,
    read_preprocessing,
)
from visleak.errors import VisleakError
from visleak.records import DecodedImage


def smooth(seed, height, width):
    rough = np.random.default_rng(seed).integers(0, 256, (9, 9, 3), np.uint8)
    return cv2.resize(rough, (width, height), interpolation=cv2.INTER_CUBIC)


def prepared(preparation, pixels):
    made = preparation(DecodedImage(pixels, pixels.shape[1], pixels.shape[0]))
    assert made.dtype == np.uint8
    assert made.flags.c_contiguous
    return made


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory):
    """Return a processor of transformers with its own defaults, and our reading of its file."""
    pytest.importorskip("transformers")
    name = request.param.lower()
    module = import_module(f"transformers.models.{name}.image_processing_pil_{name}")
    processor = getattr(module, f"{request.param}ImageProcessorPil")()
    folder = tmp_path_factory.mktemp("processor")
    (folder / "preprocessor_config.json").write_text(
        f'{{"image_processor_type": "{request.param}ImageProcessor"}}'
    )
    return processor, read_preprocessing(folder)


@pytest.mark.parametrize(
    ("height", "width"), [(60, 91), (301, 224), (224, 224), (500, 501), (40, 700), (5, 3), (4, 4)]
)
def test_every_known_kind_prepares_as_its_library(pair, height, width):
    processor, ours = pair
    pixels = smooth(height, height, width)
    wanted = processor(Image.fromarray(pixels), return_tensors="np")["pixel_values"][0]
    made = prepared(ours.pixels, pixels).astype(np.float64)
    scaled = (made * ours.scaling.factor - ours.scaling.mean) / ours.scaling.std
    np.testing.assert_allclose(scaled.transpose(2, 0, 1), wanted, atol=1e-5)
    assert ours.pixels.shape == made.shape[:2]


@settings(max_examples=40)
@given(
    st.integers(1, 90), st.integers(1, 90), st.integers(1, 60), st.integers(1, 60),
    st.integers(1, 60),
)  # fmt: skip
def test_crops_and_short_sides_for_all_sizes(height, width, short, tall, wide):
    library = pytest.importorskip("transformers.models.clip.image_processing_pil_clip")
    processor = library.CLIPImageProcessorPil(
        size={"shortest_edge": short},
        crop_size={"height": tall, "width": wide},
        do_rescale=False,
        do_normalize=False,
    )
    pixels = smooth(1, height, width)
    wanted = processor(Image.fromarray(pixels), return_tensors="np")["pixel_values"][0]
    made = prepared(PixelPreparation((short,), (tall, wide)), pixels)
    np.testing.assert_array_equal(made, wanted.transpose(1, 2, 0))


@pytest.mark.parametrize(("side", "crop", "start"), [(9, 6, 2), (11, 6, 2), (7, 6, 0), (6, 6, 0)])
def test_odd_crops_as_torchvision_begin_at_the_even_pixel(side, crop, start):
    pixels = np.arange(side, dtype=np.uint8)[None, :, None].repeat(crop, 0).repeat(3, 2)
    made = prepared(PixelPreparation((), (crop, crop), rounding="even"), pixels)
    assert made[0, 0, 0] == start
    small = prepared(PixelPreparation((), (8, 9), rounding="even"), np.full((3, 4, 3), 7, np.uint8))
    # torchvision pads in front with half of what is missing, rounded down
    rows, columns = np.nonzero(small[..., 0])
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (2, 4, 2, 5)


def test_a_very_long_image_is_resized_only_where_it_is_kept(monkeypatch):
    """Otherwise 1 x 40,000 pixels would become gigabytes; the pixels are those of the long way."""
    preparation = PixelPreparation((32,), (32, 30))
    for height, width in [(20, 900), (900, 20), (50, 70)]:
        pixels = smooth(3, height, width)
        wanted = prepared(preparation, pixels)
        monkeypatch.setattr(preprocessing, "MOST_PIXELS", 1000)
        made = prepared(preparation, pixels)
        monkeypatch.undo()
        assert np.abs(made.astype(int) - wanted).max() <= 1
        assert (made != wanted).mean() < 0.05
    long = np.zeros((1, 40_000, 3), np.uint8)
    assert prepared(PixelPreparation((224,), (224, 224)), long).shape == (224, 224, 3)
    # where nothing is cropped, the long side ends where memory would
    assert prepared(PixelPreparation((288,)), long).shape == (288, 16_000_000 // 288, 3)


@pytest.mark.parametrize(
    ("height", "width"), [(400, 300), (300, 401), (100, 80), (256, 200), (256, 256), (1, 900)]
)
def test_laions_resizing(height, width):
    pixels = smooth(4, height, width)
    bgr = pixels[..., ::-1]
    scale = 256 / max(height, width)
    if scale != 1:
        method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LANCZOS4
        shape = max(round(width * scale), 1), max(round(height * scale), 1)
        bgr = cv2.resize(bgr, shape, interpolation=method)
    down, across = 256 - bgr.shape[0], 256 - bgr.shape[1]
    border = down // 2, down - down // 2, across // 2, across - across // 2
    square = cv2.copyMakeBorder(bgr, *border, cv2.BORDER_CONSTANT, value=(255, 255, 255))
    stored = cv2.imencode(".jpg", square, [cv2.IMWRITE_JPEG_QUALITY, 95])[1]
    again = cv2.imdecode(stored, cv2.IMREAD_COLOR)
    np.testing.assert_array_equal(as_laion(pixels, jpeg=False), square[..., ::-1])
    # two decoders of JPEG may round apart
    made = as_laion(pixels).astype(int)
    assert made.shape == (LAION_SIDE, LAION_SIDE, 3)
    assert np.abs(made - again[..., ::-1]).max() <= 2


#: As the hub has it for CLIP ViT-B/32 of OpenAI: an old form.
OLD_CLIP = {
    "crop_size": 224,
    "do_center_crop": True,
    "feature_extractor_type": "CLIPFeatureExtractor",
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "size": 224,
}


def folder_with(folder, content, name="preprocessor_config.json"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def test_old_and_new_forms_are_one_recipe(tmp_path):
    new = {
        **{name: value for name, value in OLD_CLIP.items() if name != "feature_extractor_type"},
        "image_processor_type": "CLIPImageProcessorFast",
        "crop_size": {"height": 224, "width": 224},
        "size": {"shortest_edge": 224},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_pad": None,
    }
    folders = [
        folder_with(tmp_path / "old", OLD_CLIP),
        folder_with(tmp_path / "new", new),
        folder_with(tmp_path / "nested", {"image_processor": new}, "processor_config.json"),
    ]
    first, second, third = (read_preprocessing(folder).recipe() for folder in folders)
    assert first == second == third
    assert first["resize"] == [224]


def test_convnext_resizes_beyond_and_crops(tmp_path):
    """As the hub has it for ResNet-152."""
    stated = {"crop_pct": 0.875, "feature_extractor_type": "ConvNextFeatureExtractor"}
    small = read_preprocessing(folder_with(tmp_path / "a", stated | {"size": 224})).pixels
    assert (small.resize, small.crop) == ((256,), (224, 224))
    large = read_preprocessing(folder_with(tmp_path / "b", stated | {"size": 384})).pixels
    assert (large.resize, large.crop) == ((384, 384), ())


def test_steps_that_are_switched_off(tmp_path):
    off = {"do_resize": False, "do_rescale": False, "do_normalize": False, "do_center_crop": False}
    made = read_preprocessing(folder_with(tmp_path, OLD_CLIP | off))
    assert (made.pixels.resize, made.pixels.crop, made.pixels.shape) == ((), (), None)
    assert (made.scaling.factor, made.scaling.mean, made.scaling.std) == (1, (0, 0, 0), (1, 1, 1))


WRONG = [
    ({"image_processor_type": "SamImageProcessor"}, "is of 'SamImageProcessor'; those known are C"),
    ("{", "cannot be read (Expecting"),
    ("[" * 100_000, "cannot be read (maximum recursion"),
    ("[1]", "is not understood: it must hold names and values"),
    (OLD_CLIP | {"size": {"longest_edge": 3}}, "is not understood (ValueError: a size must be hei"),
    (OLD_CLIP | {"size": 0}, "is not understood (ValueError: a side must be from 1 to 4096 pixels"),
    (OLD_CLIP | {"image_std": [1, 0, 1]}, "is not understood (ValueError: image_std must be above"),
    (OLD_CLIP | {"image_mean": [1, 2]}, "is not understood (ValueError: mean and standard deviat"),
]


@pytest.mark.parametrize(("content", "said"), WRONG)
def test_unknown_preprocessing_is_refused_in_one_line(tmp_path, content, said):
    line = refusal(VisleakError, read_preprocessing, folder_with(tmp_path, content))
    assert said in line
    assert str(tmp_path / "preprocessor_config.json") in line
