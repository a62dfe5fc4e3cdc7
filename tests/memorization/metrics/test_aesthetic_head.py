"""The aesthetic head: one affine map, read from files that are not trusted."""

import os
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

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
    """Its weight and bias are known."""

    head = AestheticHead.load(PUBLISHED)
    weight, bias = affine(head)
    assert head.width == 768
    assert np.linalg.norm(weight) == pytest.approx(17.9956, abs=5e-5)
    assert bias == pytest.approx(5.2366, abs=5e-5)
    rows = unit_rows(50, 768)
    np.testing.assert_allclose(head(rows), rows @ weight + bias, atol=1e-9)


@pytest.mark.parametrize("form", ["pth", "nested", "safetensors", "cls"])
def test_scores_are_the_networks(tmp_path, form):
    """Of more than ten layers, in each kind of file, whatever it was called in."""
    import torch
    from safetensors.torch import save_file

    network = sequence([6, *[5] * 11, 1]).eval()
    path = tmp_path / ("head.safetensors" if form == "safetensors" else "head.pth")
    state = network.state_dict()
    if form == "safetensors":
        save_file(state, path)
    elif form == "nested":
        torch.save({"state_dict": {f"layers.{name}": value for name, value in state.items()}}, path)
    elif form == "pth":
        torch.save(state, path)
    else:
        network = sequence([6, 1]).eval()
        torch.save(network[0].state_dict(), path)  # names without a stem: weight, bias
    head = AestheticHead.load(path)
    rows = unit_rows(20, 6)
    with torch.inference_mode():
        theirs = network(torch.from_numpy(rows).float()).numpy()[:, 0]
    np.testing.assert_allclose(head(rows), theirs, atol=1e-6)
    weight, bias = affine(head)
    np.testing.assert_allclose(head(rows), rows @ weight + bias, atol=1e-12)


def test_the_digest_is_of_the_weights(tmp_path):
    import torch

    def saved(name, seed):
        torch.save(sequence([4, 3, 1], seed).state_dict(), tmp_path / name)
        return AestheticHead.load(tmp_path / name)

    assert saved("a.pth", 0).digest == saved("b.pth", 0).digest
    assert saved("a.pth", 0).digest != saved("c.pth", 1).digest


@pytest.fixture
def head(tmp_path):
    import torch

    torch.save(sequence([12, 3, 1]).state_dict(), tmp_path / "head.pth")
    return AestheticHead.load(tmp_path / "head.pth")


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
        return os.system, ("echo ran > /dev/null",)


def wrong_files(folder):
    """Return files that are no head, and what is said of each."""
    import torch

    made = {
        "norm": ({"0.weight": torch.ones(4), "0.bias": torch.ones(4)}, "0 is not a linear layer"),
        "two outputs": (torch.nn.Linear(4, 2).state_dict(), "has layers 4 to 2; it must be a"),
        "gap": (
            {"0.weight": torch.ones(3, 4), "1.weight": torch.ones(1, 5)},
            "has layers 4 to 3, 5 to 1; it must be a stack of linear layers",
        ),
        "other part": ({"0.running_mean": torch.ones(4)}, "has '0.running_mean'; it must be"),
        "nothing": ({}, "holds no tensors by name"),
        "no state": ([1, 2], "holds no tensors by name"),
        "not finite": ({"0.weight": torch.full((1, 4), np.nan)}, "in 0 that are not finite"),
    }
    found = {}
    for name, (content, said) in made.items():
        path = folder / f"{name}.pth"
        torch.save(content, path)
        found[name] = path, said
    trap, words, tensors = (folder / each for each in ("trap.pth", "w.pth", "w.safetensors"))
    trap.write_bytes(pickle.dumps(_Trap()))
    words.write_text("words")
    tensors.write_text("words")
    found["trap"] = trap, "is not a file of weights alone ("
    found["words"] = words, "is not a file of weights alone ("
    found["no tensors"] = tensors, "is not a file of weights alone ("
    found["none"] = folder / "none.pth", "aesthetic head: there is no file"
    return found


def test_files_that_are_no_head(tmp_path):
    """Each is refused in one line that names it; nothing in it is run."""
    for path, said in wrong_files(tmp_path).values():
        with pytest.raises(VisleakError) as caught:
            AestheticHead.load(path)
        assert said in str(caught.value)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_pictures_are_scored_by_their_own_vectors(word_clip, head, tmp_path, small_pictures):
    """Loaded in one call, with the tower for images alone; it fits or is refused."""
    import torch

    from visleak.encoders.features import load_alignment

    scored = load_aesthetic(tmp_path / "head.pth", str(word_clip), device="cpu")
    vectors = load_alignment(str(word_clip), device="cpu").images(small_pictures)
    np.testing.assert_allclose(scored(small_pictures), head(vectors), atol=1e-6)
    assert scored.name.endswith(f"head.pth on clip:{word_clip}")
    torch.save(sequence([768, 1]).state_dict(), tmp_path / "large.pth")
    with pytest.raises(UsageError) as caught:
        load_aesthetic(tmp_path / "large.pth", str(word_clip), device="cpu")
    assert "takes vectors of 768 numbers, those of CLIP ViT-L/14; clip:" in str(caught.value)
    assert str(caught.value).endswith("makes 12")
