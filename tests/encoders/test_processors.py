"""Files that say how images are prepared: old and new forms, and damaged ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from visleak.encoders.preprocessing import read_preprocessing
from visleak.errors import VisleakError

#: As the hub has it for CLIP ViT-B/32 of OpenAI and for ResNet-152: an old form.
OLD_CLIP = {
    "crop_size": 224,
    "do_center_crop": True,
    "do_normalize": True,
    "do_resize": True,
    "feature_extractor_type": "CLIPFeatureExtractor",
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "resample": 3,
    "size": 224,
}
OLD_RESNET = {
    "crop_pct": 0.875,
    "do_normalize": True,
    "do_resize": True,
    "feature_extractor_type": "ConvNextFeatureExtractor",
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
    "resample": 3,
    "size": 224,
}


def folder_with(folder: Path, content: object, name: str = "preprocessor_config.json") -> Path:
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
    recipes = [
        read_preprocessing(folder_with(tmp_path / "old", OLD_CLIP)).recipe(),
        read_preprocessing(folder_with(tmp_path / "new", new)).recipe(),
        read_preprocessing(
            folder_with(tmp_path / "nested", {"image_processor": new}, "processor_config.json")
        ).recipe(),
    ]
    assert recipes[0] == recipes[1] == recipes[2]
    assert recipes[0]["resize"] == [224]


def test_convnext_resizes_beyond_and_crops(tmp_path):
    small = read_preprocessing(folder_with(tmp_path / "a", OLD_RESNET)).pixels
    assert (small.resize, small.crop) == ((256,), (224, 224))
    large = read_preprocessing(folder_with(tmp_path / "b", OLD_RESNET | {"size": 384})).pixels
    assert (large.resize, large.crop) == ((384, 384), ())


def test_steps_that_are_switched_off(tmp_path):
    off = {"do_resize": False, "do_rescale": False, "do_normalize": False, "do_center_crop": False}
    made = read_preprocessing(folder_with(tmp_path, OLD_CLIP | off))
    assert (made.pixels.resize, made.pixels.crop, made.pixels.shape) == ((), (), None)
    assert (made.scaling.factor, made.scaling.mean, made.scaling.std) == (1, (0, 0, 0), (1, 1, 1))


WRONG = [
    ({"image_processor_type": "SamImageProcessor"}, "is of 'SamImageProcessor'; those known are C"),
    ({}, "is of 'no named processor'; those known are CLIPImageProcessor"),
    ("{", "cannot be read (Expecting"),
    ("[" * 100_000, "cannot be read (maximum recursion"),
    ("[1]", "is not understood: it must hold names and values"),
    (OLD_CLIP | {"size": {"longest_edge": 3}}, "is not understood (ValueError: a size must be hei"),
    (OLD_CLIP | {"size": 0}, "is not understood (ValueError: a side must be from 1 to 4096 pixels"),
    (OLD_CLIP | {"crop_size": 10**9}, "is not understood (ValueError: a side must be from 1 to 40"),
    (OLD_CLIP | {"image_std": [1, 0, 1]}, "is not understood (ValueError: image_std must be above"),
    (OLD_CLIP | {"image_mean": [1, 2]}, "is not understood (ValueError: mean and standard deviat"),
    (OLD_CLIP | {"resample": "x"}, "is not understood (ValueError: invalid literal"),
]


@pytest.mark.parametrize(("content", "said"), WRONG)
def test_what_is_not_understood_is_one_line(tmp_path, content, said):
    with pytest.raises(VisleakError) as caught:
        read_preprocessing(folder_with(tmp_path, content))
    assert said in str(caught.value)
    assert str(tmp_path / "preprocessor_config.json") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_the_file(tmp_path):
    with pytest.raises(VisleakError, match=r"has no preprocessor_config.json, which says how imag"):
        read_preprocessing(tmp_path)
