"""CLIPs that are not as published: whole words, 16 pixels, no word on how images are prepared."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import toy_word_clip
from toy_word_clip import CONTEXT, SIDE
from visleak.encoders import load_encoder
from visleak.encoders.clip import clip_encoder, whole_open_clip
from visleak.encoders.request import parse
from visleak.encoders.vision_language import load_text_tower
from visleak.errors import UsageError, VisleakError
from visleak.records import DecodedImage

on_cpu = partial(load_text_tower, device="cpu")

#: Known words, an unknown one, none, as many as fit and one more.
SENTENCES = ["a red circle", "A BLUE square", "a zebra", "", "a " * (CONTEXT - 2), "a " * CONTEXT]


def library_text(folder: Path, sentence: str) -> np.ndarray:
    """Return the unit vector of one sentence by the library alone."""
    import torch
    from transformers import CLIPModel, PreTrainedTokenizerFast

    from visleak.encoders.weights import quiet

    with quiet():
        model = CLIPModel.from_pretrained(folder).eval()
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    given = tokenizer(
        sentence, return_tensors="pt", padding="max_length", truncation=True, max_length=CONTEXT
    )
    with torch.inference_mode():
        made = model.get_text_features(given.input_ids, given.attention_mask)
    row = getattr(made, "pooler_output", made).numpy()[0].astype(np.float64)
    return np.asarray(row / np.linalg.norm(row))


def test_whole_words_are_read_as_the_library_reads_them(word_clip: Path) -> None:
    """CLIPTokenizer would make pairs of letters of this vocabulary: all words unknown."""
    tower = on_cpu(f"clip:{word_clip}")
    read = tower.encode(SENTENCES)
    expected = np.stack([library_text(word_clip, sentence) for sentence in SENTENCES])
    np.testing.assert_allclose(read.matrix, expected, atol=1e-6)
    assert read.cut.tolist() == [False, False, False, False, False, True]
    assert tower.cut(SENTENCES).tolist() == read.cut.tolist()
    # the words matter: only case, and what does not fit, do not
    assert float(read.matrix[0] @ read.matrix[1]) < 0.999


def test_a_tokenizer_without_ends(tmp_path: Path) -> None:
    """The tower reads where a text ends; without an end it would read its first token."""
    pytest.importorskip("transformers")
    folder = toy_word_clip.make_word_clip(tmp_path / "clip", processor=True, ends=False)
    with pytest.raises(VisleakError, match=r"ends a text with None, its config.json states 10"):
        on_cpu(f"clip:{folder}")


def library_picture(folder: Path, pixels: np.ndarray, mean: Any, std: Any) -> np.ndarray:
    """Return the unit vector of an image that has the network's size already."""
    import torch
    from transformers import CLIPModel

    from visleak.encoders.weights import quiet

    with quiet():
        model = CLIPModel.from_pretrained(folder).eval()
    scaled = (pixels.astype(np.float32) / 255 - np.float32(mean)) / np.float32(std)
    with torch.inference_mode():
        made = model.get_image_features(torch.from_numpy(scaled.transpose(2, 0, 1)[None]).float())
    row = getattr(made, "pooler_output", made).numpy()[0].astype(np.float64)
    return np.asarray(row / np.linalg.norm(row))


@pytest.mark.parametrize("described", [True, False])
def test_pictures_of_16_pixels(word_clip: Path, bare_clip: Path, described: bool) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    request = parse(f"clip:{word_clip if described else bare_clip}?device=cpu")
    row = clip_encoder(request, assumed=True).encode([DecodedImage(pixels, SIDE, SIDE)])[0][0]
    clip = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
    mean, std = ((0.5,) * 3, (0.5,) * 3) if described else clip
    np.testing.assert_allclose(row, library_picture(bare_clip, pixels, mean, std), atol=1e-6)


def test_nothing_is_assumed_unless_asked(bare_clip: Path) -> None:
    """An audit with images prepared in another way than in training would find less."""
    with pytest.raises(VisleakError, match=r"has no preprocessor_config.json, which says how"):
        load_encoder(f"clip:{bare_clip}?device=cpu")


def test_weights_of_open_clip_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``MODEL:FILE`` names both; the library is told of the file and asks nobody else."""
    pytest.importorskip("transformers")
    asked: list[Any] = []

    def create_model(name: str, **options: Any) -> str:
        asked.append((name, options))
        return "made"

    fake = SimpleNamespace(create_model=create_model, list_models=lambda: ["ViT-g-14"])
    monkeypatch.setitem(sys.modules, "open_clip", fake)  # type: ignore[arg-type]
    file = tmp_path / "weights.bin"
    file.touch()
    made = whole_open_clip(parse(f"clip:ViT-g-14:{file}?backend=open_clip"))
    assert made == ("made", "ViT-g-14")
    assert asked == [("ViT-g-14", {"require_pretrained": True, "pretrained": str(file)})]
    with pytest.raises(VisleakError, match=r"there is no file \S+absent with weights of ViT-g-14"):
        whole_open_clip(parse(f"clip:ViT-g-14:{tmp_path}/absent?backend=open_clip"))
    with pytest.raises(UsageError, match="open_clip has no network 'ViT-x'; MODEL:FILE takes one"):
        whole_open_clip(parse(f"clip:ViT-x:{file}?backend=open_clip"))
