"""The text tower of a CLIP against the library's own numbers, sentence by sentence."""

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_models import unit

import toy_clip
from refusals import refusal
from toy_word_clip import CONTEXT, SIDE, make_word_clip
from visleak.encoders import load_encoder
from visleak.encoders.clip import clip_encoder, whole_open_clip
from visleak.encoders.request import parse
from visleak.encoders.vision_language import load_text_tower
from visleak.errors import UsageError, VisleakError
from visleak.records import DecodedImage

on_cpu = partial(load_text_tower, device="cpu")

#: Short, long, empty, of one token more than fits and of just as many, foreign letters, twice.
SENTENCES = [
    "a photo of a cat.",
    "dog",
    "",
    "a photo of many, many very long things that cannot fit",
    "x" * (toy_clip.CONTEXT - 1),
    "x" * (toy_clip.CONTEXT - 2),
    "naïve  漢字 😀",
    "DOG",
]
CUT = [False, False, False, True, True, False, True, False]


@pytest.fixture(scope="module")
def expected(clip_folder):
    return toy_clip.text_features(clip_folder, SENTENCES)


@pytest.mark.parametrize("batch", [1, 3])
def test_vectors_are_the_librarys(clip_folder, expected, batch):
    tower = on_cpu(f"clip:{clip_folder}", batch=batch)
    read = tower.encode(SENTENCES)
    np.testing.assert_allclose(read.matrix, expected, atol=1e-6)
    assert read.cut.tolist() == tower.cut(SENTENCES).tolist() == CUT


def test_a_vector_depends_on_its_sentence_alone(clip_folder):
    """Neither on the order nor on what else is read; equal sentences are read once."""
    tower = on_cpu(f"clip:{clip_folder}")
    together = tower.encode(SENTENCES).matrix
    for place, sentence in enumerate(SENTENCES):
        np.testing.assert_array_equal(tower.encode([sentence]).matrix[0], together[place])
    told = []
    tower.encode(["dog"] * 50 + ["cat"], lambda done, total: told.append((done, total)))
    assert told[-1] == (2, 2)
    assert tower.logit_scale == pytest.approx(20.0)


def test_a_tokenizer_in_two_files(clip_folder, tmp_path, expected):
    folder = shutil.copytree(clip_folder, tmp_path / "clip")
    words = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(words["vocab"]))
    merges = "".join(f"{' '.join(pair)}\n" for pair in toy_clip.MERGES)
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}")
    read = on_cpu(f"clip:{folder}").encode(SENTENCES)
    np.testing.assert_allclose(read.matrix, expected, atol=1e-6)


def test_old_configurations_end_with_the_highest_token(tmp_path):
    folder = toy_clip.make_clip(tmp_path / "old", end=2)
    read = on_cpu(f"clip:{folder}").encode(SENTENCES)
    np.testing.assert_allclose(read.matrix, toy_clip.text_features(folder, SENTENCES), atol=1e-6)


def test_the_digest_tells_models_apart(clip_folder, tmp_path):
    same = shutil.copytree(clip_folder, tmp_path / "same")
    digest = on_cpu(f"clip:{clip_folder}").digest
    assert on_cpu(f"clip:{same}?batch=2").digest == digest
    assert on_cpu(f"clip:{toy_clip.make_clip(tmp_path / 'other', seed=1)}").digest != digest
    content = json.loads((same / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (same / "tokenizer.json").write_text(json.dumps(content))
    assert on_cpu(f"clip:{same}").digest != digest


@pytest.mark.parametrize("kind", ["none", "half"])
def test_a_folder_without_a_tokenizer(clip_folder, tmp_path, kind):
    """The library would make one of three words, by which all sentences are one."""
    folder = shutil.copytree(clip_folder, tmp_path / "clip")
    (folder / "tokenizer.json").unlink()
    if kind == "half":
        (folder / "vocab.json").write_text("{}")
    assert f"{folder} has no tokenizer (" in refusal(VisleakError, on_cpu, f"clip:{folder}")
    (folder / "tokenizer.json").write_text("{")
    assert "cannot be loaded (" in refusal(VisleakError, on_cpu, f"clip:{folder}")


def test_a_tokenizer_of_another_model(tmp_path):
    """The tower would search an end that never comes, and all vectors would be equal."""
    folder = toy_clip.make_clip(tmp_path / "clip", end=5)
    last = len(toy_clip.make_tokenizer()) - 1
    said = refusal(VisleakError, on_cpu, f"clip:{folder}")
    assert f"its tokenizer has tokens up to {last} and ends a text with {last}, its config" in said


def test_models_without_texts(clip_folder, tmp_path):
    with pytest.raises(UsageError, match="the model must be a CLIP, which has a tower for texts"):
        load_text_tower("dinov2")
    folder = shutil.copytree(clip_folder, tmp_path / "vision")
    config = json.loads((folder / "config.json").read_text())
    config = {**config["vision_config"], "model_type": "clip_vision_model"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(VisleakError, match="is a tower for images alone; texts need the whole"):
        on_cpu(f"clip:{folder}")


def test_a_vector_without_a_direction(clip_folder, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(clip_folder, tmp_path / "clip")
    weights = load_file(folder / "model.safetensors")
    weights["text_projection.weight"].zero_()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    said = refusal(VisleakError, on_cpu(f"clip:{folder}").encode, ["cat", "dog"])
    assert "2 sentences have a vector without a direction, such as 'cat'" in said


@pytest.mark.data
@pytest.mark.skipif("VISLEAK_DATA" not in os.environ, reason="needs VISLEAK_DATA")
def test_clips_own_words_are_read_as_published(tmp_path):
    import gzip

    from transformers import CLIPTokenizer

    from visleak.encoders.vision_language import ClipTokenizer

    file = Path(os.environ["VISLEAK_DATA"]) / "membench" / "clip-bpe-vocab-16e6.txt.gz"
    lines = gzip.decompress(file.read_bytes()).decode().split("\n")
    merges = [tuple(line.split()) for line in lines[1 : 49152 - 256 - 2 + 1]]
    letters = toy_clip.letters()
    words = [*letters, *(f"{letter}</w>" for letter in letters), *map("".join, merges)]
    words += ["<|startoftext|>", "<|endoftext|>"]
    library = CLIPTokenizer(vocab={word: n for n, word in enumerate(words)}, merges=merges)
    tokens = ClipTokenizer(library, 77)(["Hello World!", "a photo of a cat", "cat " * 80])
    assert tokens.ids[0, :5].tolist() == [49406, 3306, 1002, 256, 49407]
    assert tokens.ids[1, :7].tolist() == [49406, 320, 1125, 539, 320, 2368, 49407]
    assert tokens.lengths.tolist() == [5, 7, 77]
    assert tokens.cut.tolist() == [False, False, True]
    assert tokens.ids[2].tolist() == [49406, *[2368] * 75, 49407]


#: Known words, an unknown one, none, as many as fit and one more.
WORDS = ["a red circle", "A BLUE square", "a zebra", "", "a " * (CONTEXT - 2), "a " * CONTEXT]


def test_whole_words_are_read_as_the_library_reads_them(word_clip):
    """CLIPTokenizer would make pairs of letters of this vocabulary: all words unknown."""
    import torch
    from transformers import CLIPModel, PreTrainedTokenizerFast

    model = CLIPModel.from_pretrained(word_clip).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(word_clip)
    length = {"padding": "max_length", "truncation": True, "max_length": CONTEXT}
    given = tokenizer(WORDS, return_tensors="pt", **length)
    with torch.inference_mode():
        made = model.get_text_features(given.input_ids, given.attention_mask)
    read = on_cpu(f"clip:{word_clip}").encode(WORDS)
    wanted = unit(getattr(made, "pooler_output", made).numpy())
    np.testing.assert_allclose(read.matrix, wanted, atol=1e-6)
    assert read.cut.tolist() == [False] * 5 + [True]
    assert float(read.matrix[0] @ read.matrix[1]) < 0.999


def test_a_tokenizer_without_ends(tmp_path):
    """The tower reads where a text ends; without an end it would read its first token."""
    pytest.importorskip("transformers")
    folder = make_word_clip(tmp_path / "clip", processor=True, ends=False)
    with pytest.raises(VisleakError, match=r"ends a text with None, its config.json states"):
        on_cpu(f"clip:{folder}")


def test_preprocessing_is_assumed_only_on_request(bare_clip):
    """It is then that of OpenAI's networks."""
    import torch
    from transformers import CLIPModel

    with pytest.raises(VisleakError, match=r"has no preprocessor_config.json, which says how"):
        load_encoder(f"clip:{bare_clip}?device=cpu")
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    scaled = torch.from_numpy(((pixels / 255 - mean) / std).transpose(2, 0, 1)[None]).float()
    with torch.inference_mode():
        made = CLIPModel.from_pretrained(bare_clip).eval().get_image_features(scaled)
    wanted = unit(getattr(made, "pooler_output", made).numpy())
    encoder = clip_encoder(parse(f"clip:{bare_clip}?device=cpu"), assumed=True)
    found, _ = encoder.encode([DecodedImage(pixels, SIDE, SIDE)])
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_weights_of_open_clip_in_a_file(tmp_path, monkeypatch):
    """``MODEL:FILE`` names both; the library gets the file and downloads nothing."""
    pytest.importorskip("transformers")

    def create_model(name, **options):
        return name, options

    fake = SimpleNamespace(create_model=create_model, list_models=lambda: ["ViT-g-14"])
    monkeypatch.setitem(sys.modules, "open_clip", fake)  # type: ignore[arg-type]
    file = tmp_path / "weights.bin"
    file.touch()
    made, name = whole_open_clip(parse(f"clip:ViT-g-14:{file}?backend=open_clip"))
    assert made == (name, {"require_pretrained": True, "pretrained": str(file)})
    with pytest.raises(VisleakError, match=r"there is no file \S+absent with weights of ViT-g-14"):
        whole_open_clip(parse(f"clip:ViT-g-14:{tmp_path}/absent?backend=open_clip"))
    with pytest.raises(UsageError, match="open_clip has no network 'ViT-x'; MODEL:FILE takes one"):
        whole_open_clip(parse(f"clip:ViT-x:{file}?backend=open_clip"))
