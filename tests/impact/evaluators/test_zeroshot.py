"""Zero-shot answers of a small real CLIP against the library alone, and the file they stand in."""

import json
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest

import toy_clip
from visleak.encoders import load_encoder
from visleak.encoders.vision_language import load_text_tower
from visleak.images import decode
from visleak.impact.evaluators import zeroshot as module
from visleak.impact.evaluators.zeroshot import load_templates

zeroshot = partial(module.zeroshot, options={"device": "cpu"}, cache=None, workers=1)
TEMPLATES = ("a photo of a {}.", "the {}", "{}")


def by_library(folder, files, names, templates):
    """Return the logits (files, classes) as OpenAI's notebook has it, with the library's texts."""
    pictures = [decode(file.read_bytes()) for file in files]
    rows = load_encoder(f"clip:{folder}", device="cpu").encode(pictures)[0].astype(np.float64)
    classes = []
    for name in names:
        own = toy_clip.text_features(folder, [each.format(name) for each in templates])
        classes.append(own.mean(axis=0) / np.linalg.norm(own.mean(axis=0)))
    # the scale of the toy's logits
    return 20.0 * rows @ np.stack(classes).T


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
    labels = [place.name for place in labelled.iterdir()]
    file = tmp_path / "c.txt"
    file.write_text("".join(f"{label}\t{label}\n" for label in labels) + "sea\tmoon\n")
    done = zeroshot(images, model, tmp_path / "p.parquet", templates="openai", classes=file)
    about = json.loads(pq.read_schema(done.file).metadata[b"visleak"])
    tower = load_text_tower(model, device="cpu")
    sentences = load_templates("openai")
    prompts = [prompt for name in (*labels, "moon") for prompt in sentences.prompts(name)]
    cut = int(tower.encode(prompts).cut.sum())
    assert 0 < cut < len(prompts) == 800
    assert (about["evaluator"], about["model"]["text digest"]) == ("zeroshot", tower.digest)
    assert about["templates"] == {"name": "openai", "count": 80, "digest": sentences.digest}
    assert about["prompts"] == {"count": 800, "cut": cut}
    note, shared = done.notes
    assert shared.startswith("names that several classes have: moon; the first")
    assert note.endswith(f"truncated: {cut} of 800")
