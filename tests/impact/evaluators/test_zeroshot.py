"""Zero-shot answers of a small real CLIP against the library alone, and the file they stand in."""

import json
import shutil
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import toy_clip
from visleak.encoders.vision_language import load_text_tower
from visleak.formats import open_image_set
from visleak.impact.evaluators import zeroshot as module
from visleak.impact.evaluators.zeroshot import load_templates

zeroshot = partial(module.zeroshot, options={"device": "cpu"}, cache=None, workers=1)
TEMPLATES = ("a photo of a {}.", "the {}", "{}")


def by_library(folder, files, names, templates):
    """Return the logits (files, classes) by transformers alone, as OpenAI's notebook has it."""
    import torch
    from transformers import CLIPModel
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    from visleak.encoders.weights import quiet

    with quiet():
        model = CLIPModel.from_pretrained(folder).eval()
        processor = CLIPImageProcessorPil.from_pretrained(folder)
    pictures = []
    for file in files:
        given = processor(Image.open(file).convert("RGB"), return_tensors="pt")
        with torch.inference_mode():
            made = model.get_image_features(**given)
        pictures.append(getattr(made, "pooler_output", made).numpy()[0].astype(np.float64))
    classes = []
    for name in names:
        rows = toy_clip.text_features(folder, [each.format(name) for each in templates])
        classes.append(rows.mean(axis=0) / np.linalg.norm(rows.mean(axis=0)))
    rows = np.stack(pictures)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return float(model.logit_scale.detach().exp()) * rows @ np.stack(classes).T


def rows_of(file):
    return pq.read_table(file).to_pylist()


def test_answers_are_the_librarys(clip_folder, labelled, tmp_path, images):
    (tmp_path / "t.txt").write_text("\n".join(TEMPLATES))
    done = zeroshot(
        images, f"clip:{clip_folder}", tmp_path / "p.parquet", templates=str(tmp_path / "t.txt")
    )
    rows = rows_of(done.file)
    names = sorted({row["label"] for row in rows})
    files, words = [labelled / row["id"] for row in rows], [n.replace("_", " ") for n in names]
    logits = by_library(clip_folder, files, words, TEMPLATES)
    order = np.argsort(-logits, axis=1)[:, :5]
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert [row["id"] for row in rows] == images.ids.to_pylist()
    for row, best, chances in zip(rows, order, softmax, strict=True):
        assert row["predictions"] == [names[place] for place in best]
        assert row["prediction"] == row["predictions"][0]
        assert row["confidence"] == pytest.approx(chances.max(), abs=1e-4)
    right = [names[best[0]] == row["label"] for row, best in zip(rows, order, strict=True)]
    among = [row["label"] in row["predictions"] for row in rows]
    assert (done.accuracy.count, done.accuracy.total) == (sum(right), 36)
    assert done.top_5.count == sum(among)
    assert 0 < sum(right) < sum(among) < 36
    assert (done.prompts, done.templates) == (27, (str(tmp_path / "t.txt"), 3))
    assert len({row["prediction"] for row in rows}) > 1


def test_what_made_them_stands_in_the_file(clip_folder, labelled, tmp_path, images):
    model = f"clip:{clip_folder}"
    done = zeroshot(images, model, tmp_path / "p.parquet", templates="openai")
    about = json.loads(pq.read_schema(done.file).metadata[b"visleak"])
    tower = load_text_tower(model, device="cpu")
    sentences = load_templates("openai")
    names = (place.name.replace("_", " ") for place in labelled.iterdir())
    prompts = [prompt for name in names for prompt in sentences.prompts(name)]
    cut = int(tower.encode(prompts).cut.sum())
    assert 0 < cut < len(prompts) == 720
    assert (about["evaluator"], about["model"]["text digest"]) == ("zeroshot", tower.digest)
    assert about["templates"] == {"name": "openai", "count": 80, "digest": sentences.digest}
    assert about["prompts"] == {"count": 720, "cut": cut}
    (note,) = done.notes
    assert note.endswith(f"truncated: {cut} of 720")


def test_names_by_label_and_pictures_that_cannot_be_read(clip_folder, labelled, tmp_path):
    folder = tmp_path / "set"
    for name in ("moon", "coins", "grass"):
        shutil.copytree(labelled / name, folder / name)
    (folder / "moon" / "0.png").write_bytes(b"no picture")
    broken = "moon/0.png"
    lines = ["moon\ta disc", "coins\tmoney", "sea\tmoney"]
    (tmp_path / "c.txt").write_text("\n".join(lines))
    images = open_image_set(str(folder))
    done = zeroshot(images, f"clip:{clip_folder}", tmp_path / "p.csv", classes=tmp_path / "c.txt")
    text = done.file.read_text().splitlines()
    assert text[0] == "id,label,prediction,confidence"
    assert {line.split(",")[2] for line in text[1:]} <= {"moon", "coins"}
    assert broken in done.unreadable_file.read_text()
    assert (done.images, done.unreadable) == (len(images) - 1, 1)
    shared, foreign = done.notes
    assert shared.startswith("names that several classes have: money; the first")
    assert foreign.endswith("not a class of the model: grass; their 4 images count as wrong")
