"""The aesthetic head: one affine map, read from files that are not trusted."""

import os
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from refusals import refusal
from visleak.errors import UsageError, VisleakError
from visleak.memorization.metrics import AestheticHead, load_aesthetic

DATA = os.environ.get("VISLEAK_DATA")
PUBLISHED = Path(DATA or ".") / "membench" / "aesthetic-head-vit-l-14.pth"


def sequence(widths, seed=0):
    """Return a network as it is trained: linear layers with dropout between them."""
    import torch

    torch.manual_seed(seed)
    parts = []
    for one, other in pairwise(widths):
        parts += [torch.nn.Linear(one, other), torch.nn.Dropout(0.2)]
    return torch.nn.Sequential(*parts[:-1])


def affine(head):
    """Return weight and bias, of the scores of unit vectors along the axes."""
    axes = np.eye(head.width)
    bias = float((head(axes[:1]) + head(-axes[:1]))[0] / 2)
    return head(axes) - bias, bias


def unit_rows(count, width):
    rows = np.random.default_rng(1).standard_normal((count, width))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


@pytest.mark.data
@pytest.mark.skipif(not PUBLISHED.is_file(), reason="needs VISLEAK_DATA with the published head")
def test_the_published_head_is_one_affine_map():
    head = AestheticHead.load(PUBLISHED)
    weight, bias = affine(head)
    assert head.width == 768
    assert np.linalg.norm(weight) == pytest.approx(17.9956, abs=5e-5)
    assert bias == pytest.approx(5.2366, abs=5e-5)
    rows = unit_rows(50, 768)
    np.testing.assert_allclose(head(rows), rows @ weight + bias, atol=1e-9)


@pytest.mark.parametrize("form", ["pth", "safetensors", "bare"])
def test_scores_are_the_networks(tmp_path, form):
    """Of more than ten layers, in each kind of file; names of one layer may have no stem."""
    import torch
    from safetensors.torch import save_file

    network = sequence([6, 1] if form == "bare" else [6, *[5] * 11, 1]).eval()
    path = tmp_path / ("head.safetensors" if form == "safetensors" else "head.pth")
    state = (network[0] if form == "bare" else network).state_dict()
    (save_file if form == "safetensors" else torch.save)(state, path)
    head = AestheticHead.load(path)
    rows = unit_rows(20, 6)
    with torch.inference_mode():
        theirs = network(torch.from_numpy(rows).float()).numpy()[:, 0]
    np.testing.assert_allclose(head(rows), theirs, atol=1e-6)
    weight, bias = affine(head)
    np.testing.assert_allclose(head(rows), rows @ weight + bias, atol=1e-12)


def saved(path, widths, seed=0):
    import torch

    torch.save(sequence(widths, seed).state_dict(), path)
    return path


@pytest.fixture
def head(tmp_path):
    return AestheticHead.load(saved(tmp_path / "head.pth", [12, 3, 1]))


def test_vectors_of_another_network(head):
    """Another width, or lengths that it was not trained on, would give numbers of nothing."""
    with pytest.raises(UsageError, match=r"takes vectors of 12 numbers; got an array \(2, 11\)"):
        head(unit_rows(2, 11))
    with pytest.raises(UsageError, match=r"takes vectors of unit length; got one of length 2$"):
        head(np.concatenate([unit_rows(2, 12), 2 * unit_rows(1, 12)]))
    with pytest.raises(UsageError, match="takes vectors of unit length; got one of length nan"):
        head(np.full((1, 12), np.nan))


class _Trap:
    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"0.weight": np.ones(4), "0.bias": np.ones(4)}, "0 is not a linear layer"),
        ({"weight": np.ones((2, 4))}, "has layers 4 to 2; it must be a stack of linear layers"),
        (
            {"0.weight": np.ones((3, 4)), "1.weight": np.ones((1, 5))},
            "has layers 4 to 3, 5 to 1; it must be a stack of linear layers",
        ),
        ({"0.running_mean": np.ones(4)}, "has '0.running_mean'; it must be"),
        ({"0.weight": np.full((1, 4), np.nan)}, "in 0 that are not finite"),
        ({}, "holds no tensors by name"),
        (_Trap(), "is not a file of weights alone ("),
        (b"words", "is not a file of weights alone ("),
        (None, "aesthetic head: there is no file"),
    ],
)
def test_files_that_are_no_head(tmp_path, monkeypatch, content, said):
    """Each is refused in one line that names it; nothing in it is run."""
    import torch

    monkeypatch.chdir(tmp_path)
    path = tmp_path / ("head.safetensors" if content == b"words" else "head.pth")
    if isinstance(content, dict):
        torch.save({name: torch.from_numpy(each) for name, each in content.items()}, path)
    elif content is not None:
        path.write_bytes(content if content == b"words" else pickle.dumps(content))
    message = refusal(VisleakError, AestheticHead.load, path)
    assert said in message
    assert str(path) in message
    assert not (tmp_path / "ran").exists()


def test_pictures_are_scored_by_their_own_vectors(word_clip, head, tmp_path, small_pictures):
    """Loaded in one call, with the tower for images alone; it fits or is refused."""
    from visleak.encoders.features import load_alignment

    scored = load_aesthetic(tmp_path / "head.pth", str(word_clip), device="cpu")
    vectors = load_alignment(str(word_clip), device="cpu").images(small_pictures)
    np.testing.assert_allclose(scored(small_pictures), head(vectors), atol=1e-6)
    other = AestheticHead.load(saved(tmp_path / "other.pth", [12, 3, 1], seed=1))
    assert scored.head.digest == head.digest != other.digest
    assert scored.name.endswith(f"head.pth on clip:{word_clip}")
    large = saved(tmp_path / "large.pth", [768, 1])
    with pytest.raises(UsageError, match=r"of 768 numbers, those of CLIP ViT-L/14; .* makes 12$"):
        load_aesthetic(large, str(word_clip), device="cpu")
