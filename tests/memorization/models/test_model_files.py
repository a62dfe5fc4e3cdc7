"""Which files of a part are its weights."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.memorization.models.parts import Part, Plan, Weights, files_of, wanted, weights_of

UNET = Part("unet", "UNet2DConditionModel")
TEXT = Part("text_encoder", "CLIPTextModel")
STEM = "diffusion_pytorch_model"


@pytest.mark.parametrize(
    ("there", "half", "found"),
    [
        ([f"{STEM}.safetensors"], False, Weights("", (f"{STEM}.safetensors",))),
        ([f"{STEM}.safetensors"], True, Weights("", (f"{STEM}.safetensors",))),
        ([f"{STEM}.fp16.safetensors"], False, Weights("fp16", (f"{STEM}.fp16.safetensors",))),
        (
            [f"{STEM}.fp16.safetensors", f"{STEM}.safetensors"],
            True,
            Weights("fp16", (f"{STEM}.fp16.safetensors",)),
        ),
        (
            [f"{STEM}.fp16.safetensors", f"{STEM}.safetensors"],
            False,
            Weights("", (f"{STEM}.safetensors",)),
        ),
        (
            [
                f"{STEM}.safetensors.index.json",
                f"{STEM}-00001-of-00002.safetensors",
                f"{STEM}-00002-of-00002.safetensors",
                f"{STEM}.fp16-00001-of-00001.safetensors",
                "other-00001-of-00002.safetensors",
            ],
            False,
            Weights(
                "",
                (
                    f"{STEM}.safetensors.index.json",
                    f"{STEM}-00001-of-00002.safetensors",
                    f"{STEM}-00002-of-00002.safetensors",
                ),
            ),
        ),
        (
            [
                f"{STEM}.safetensors.index.fp16.json",
                f"{STEM}.fp16-00001-of-00001.safetensors",
                f"{STEM}-00001-of-00001.fp16.safetensors",
            ],
            False,
            Weights(
                "fp16",
                (
                    f"{STEM}.safetensors.index.fp16.json",
                    f"{STEM}-00001-of-00001.fp16.safetensors",
                    f"{STEM}.fp16-00001-of-00001.safetensors",
                ),
            ),
        ),
        (["model.safetensors", f"{STEM}.bin", f"{STEM}.non_ema.safetensors"], False, None),
        ([], True, None),
    ],
)
def test_weights_of_a_network(there, half, found):
    assert weights_of(UNET, there, half) == found


@given(there=st.permutations(["config.json", "model.safetensors", "model.fp16.safetensors", "x"]))
def test_order_does_not_matter(there):
    assert files_of(TEXT, there) == ("config.json", "model.safetensors")
    assert files_of(TEXT, there, half=True) == ("config.json", "model.fp16.safetensors")


def test_files_of_what_has_no_weights():
    there = ["tokenizer.json", "vocab.json", "merges.txt", "spiece.model", "evil.py", "x.bin"]
    found = ("merges.txt", "spiece.model", "tokenizer.json", "vocab.json")
    assert files_of(Part("tokenizer", "CLIPTokenizer"), there) == found
    there = ["scheduler_config.json", "other.json"]
    assert files_of(Part("scheduler", "DDIMScheduler"), there) == ("scheduler_config.json",)


def test_what_is_fetched_of_a_pipeline():
    plan = Plan("StableDiffusionPipeline", (TEXT, Part("scheduler", "DDIMScheduler")))
    there = [
        "README.md",
        "model_index.json",
        "scheduler/scheduler_config.json",
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "text_encoder/pytorch_model.bin",
        "unet/config.json",
        "v1-4.ckpt",
    ]
    assert wanted(plan, there) == [
        "model_index.json",
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "scheduler/scheduler_config.json",
    ]
