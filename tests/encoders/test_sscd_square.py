"""SSCD as MemBench's code feeds it: 288 x 288, whatever the shape of the image."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from PIL import Image  # noqa: E402

from visleak.encoders import load_encoder  # noqa: E402
from visleak.memorization.extraction import load_similarity  # noqa: E402
from visleak.records import DecodedImage  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is:DeprecationWarning")

MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture
def pictures():
    rng = np.random.default_rng(5)
    rough = [rng.integers(0, 256, shape).astype(np.uint8) for shape in ((6, 4, 3), (4, 9, 3))]
    big = [Image.fromarray(each).resize((400, 310), Image.Resampling.BICUBIC) for each in rough]
    # one is wide, one is tall
    return [np.asarray(big[0]), np.asarray(big[1].rotate(90, expand=True))]


def by_hand(script, pixels):
    """Return the vector as torchvision's Resize((288, 288)), ToTensor and Normalize would."""
    square = Image.fromarray(pixels).resize((288, 288), Image.Resampling.BILINEAR)
    scaled = (np.asarray(square, np.float32) / 255 - MEAN) / SPREAD
    inputs = torch.tensor(scaled.transpose(2, 0, 1)[None], dtype=torch.float32)
    with torch.inference_mode():
        found = script(inputs).numpy()[0]
    return found / np.linalg.norm(found)


def test_pictures_are_squeezed_to_a_square(models, pictures):
    path = f"sscd:{models}/sscd.torchscript.pt"
    square = load_encoder(f"{path}?resize=288x288")
    script = torch.jit.load(str(models / "sscd.torchscript.pt")).eval()
    shown = [DecodedImage(each, each.shape[1], each.shape[0]) for each in pictures]
    wanted = np.stack([by_hand(script, each) for each in pictures])
    np.testing.assert_allclose(square.encode(shown)[0], wanted, atol=1e-5)
    # another encoder than the one that keeps the shape
    assert square.digest != load_encoder(path).digest
    assert np.abs(load_encoder(path).encode(shown)[0] - wanted).max() > 1e-4


def test_as_a_similarity_it_is_named_with_its_size(models, pictures):
    text = f"sscd:{models}/sscd.torchscript.pt?resize=288x288"
    found = load_similarity(text)
    assert (found.name, found.eps) == (text, 0.5)
    assert found.digest != load_similarity(text.partition("?")[0]).digest
    alike = found.matrix([pictures[0], pictures[0], pictures[1]])
    assert alike[0, 1] == pytest.approx(1.0, abs=1e-6)
