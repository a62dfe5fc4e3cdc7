"""One suite for all encoders: what every one of them must do, whatever makes its vectors."""

import pickle

import numpy as np
import pytest
from objects import Means

from visleak.encoders import load_encoder
from visleak.encoders.builtin import flat
from visleak.records import VIEWS, DecodedImage

NAMES = (
    *("builtin", "phash", "pdq", "object", "onnx:{}/net.onnx", "clip:{}/clip", "dinov2:{}/dinov2"),
    *("resnet152:{}/resnet", "hf:{}/vit", "sscd:{}/sscd.torchscript.pt"),
)


@pytest.fixture(params=NAMES)
def encoder(request, models):
    name = request.param
    for package in {"pdq": ["pdqhash"], "onnx": ["onnxruntime", "onnx"]}.get(name[:4], []):
        pytest.importorskip(package)
    if name.startswith("onnx") and not (models / "net.onnx").exists():
        from test_onnx import network, saved

        saved(models / "net.onnx", network())
    if name == "object":
        return load_encoder(Means())
    return load_encoder(name.format(models), **({"batch": 4} if ":" in name else {}))


def images(natural):
    pixels = [each[: 90 + 7 * n, : 120 - 9 * n] for n, each in enumerate(natural.values())][:5]
    pixels.append(np.full((64, 80, 3), 128, np.uint8))
    return [
        DecodedImage(np.ascontiguousarray(each), each.shape[1], each.shape[0]) for each in pixels
    ]


def test_vectors_are_unit_rows_of_float32(encoder, natural):
    shown = images(natural)
    vectors, blank = encoder.encode(shown)
    assert (vectors.shape, vectors.dtype) == ((len(shown), encoder.width), np.float32)
    np.testing.assert_allclose(np.linalg.norm(vectors[:-1], axis=1), 1, atol=1e-5)
    assert (blank >= flat(shown)).all()
    assert blank[-1]
    assert not blank[0]


def test_a_vector_depends_on_its_image_alone(encoder, natural):
    shown = images(natural)
    together = encoder.encode(shown)[0]
    alone = np.concatenate([encoder.encode([image])[0] for image in shown])
    np.testing.assert_allclose(together, alone, atol=1e-7)
    np.testing.assert_allclose(encoder.encode(shown[::-1])[0], together[::-1], atol=1e-7)


def test_no_images_have_no_vectors(encoder):
    vectors, blank = encoder.encode([])
    assert (vectors.shape, blank.shape) == ((0, encoder.width), (0,))


def test_views(encoder):
    rows = np.eye(2, encoder.width, dtype=np.float32)
    np.testing.assert_array_equal(encoder.view(rows, 0), rows)
    assert encoder.views in (1, len(VIEWS))
    if hasattr(encoder, "forward"):
        with pytest.raises(ValueError, match="has no view 4"):
            encoder.view(rows, 4)


def test_the_preparation_is_sent_to_workers(encoder, natural):
    if not hasattr(encoder, "preparation"):
        assert pickle.loads(pickle.dumps(encoder)).digest == encoder.digest
        return
    packed = pickle.dumps(encoder.preparation)
    assert len(packed) < 1000
    image = images(natural)[0]
    np.testing.assert_array_equal(pickle.loads(packed)(image), encoder.preparation(image))
