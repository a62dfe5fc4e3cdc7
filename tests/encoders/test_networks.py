"""Learned encoders against numbers computed by the library directly."""

import numpy as np
import pytest
from PIL import Image
from tiny_models import pictures, resized, unit

from refusals import refusal
from toy_clip import make_clip
from visleak.encoders import load_encoder
from visleak.encoders.builtin import flat
from visleak.encoders.preprocessing import as_laion
from visleak.errors import UsageError
from visleak.records import DecodedImage


def by_library(folder, processor, model, feature):
    """Return what a model of transformers makes of images, one at a time."""
    import torch

    from visleak.encoders.weights import quiet

    with quiet():
        model, processor = model.from_pretrained(folder), processor.from_pretrained(folder)

    def vectors(shown):
        made = []
        for picture in shown:
            # an image one pixel high could be taken for channels first
            inputs = processor(Image.fromarray(picture.pixels), return_tensors="pt")
            with torch.inference_mode():
                made.append(feature(model.eval()(**inputs)).flatten(1).numpy())
        return unit(np.concatenate(made))

    return vectors


@pytest.fixture(scope="module")
def expected(saved_models):
    """Return, for each folder, the library's own way to its vectors."""
    import transformers
    from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.convnext.image_processing_pil_convnext import ConvNextImageProcessorPil
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    config = transformers.CLIPConfig.from_pretrained(saved_models / "clip")
    config.vision_config.projection_dim = config.projection_dim

    class Vision(transformers.CLIPVisionModelWithProjection):
        @classmethod
        def from_pretrained(cls, folder):
            return super().from_pretrained(folder, config=config.vision_config)

    def class_token(made):
        return made.last_hidden_state[:, 0]

    def pooled(made):
        return made.pooler_output

    parts = {
        "clip": (CLIPImageProcessorPil, Vision, lambda made: made.image_embeds),
        "dinov2": (BitImageProcessorPil, transformers.Dinov2Model, class_token),
        "resnet": (ConvNextImageProcessorPil, transformers.ResNetModel, pooled),
        "vit": (ViTImageProcessorPil, transformers.ViTModel, class_token),
    }
    return {name: by_library(saved_models / name, *part) for name, part in parts.items()}


KINDS = (
    *("clip:{}/clip", "dinov2:{}/dinov2", "resnet152:{}/resnet"),
    *("hf:{}/clip", "hf:{}/dinov2", "hf:{}/resnet", "hf:{}/vit"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_vectors_as_the_library(kind, models, expected, natural):
    text, shown = kind.format(models), pictures(natural)
    encoder = load_encoder(text)
    vectors, blank = encoder.encode(shown)
    wanted = expected[kind.rpartition("/")[2]](shown)
    # otherwise the comparison would prove nothing
    assert np.abs(wanted @ wanted.T)[np.triu_indices(len(shown), 1)].max() < 0.999
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)
    assert (encoder.name, encoder.thresholds) == (text, None)
    assert blank.tolist() == flat(shown).tolist()


# torch recommends another format; SSCD is published in this one
@pytest.mark.filterwarnings("ignore:`torch.jit.load` is:DeprecationWarning")
@pytest.mark.parametrize("resize", ["288", "320x320", "288x288"])
def test_sscd_resizes_as_published(models, natural, resize):
    import torch

    shown = pictures(natural)[:5]
    encoder = load_encoder(f"sscd:{models}/sscd.torchscript.pt?resize={resize}")
    sides = [int(side) for side in resize.split("x")]
    with torch.inference_mode():
        script = torch.jit.load(str(models / "sscd.torchscript.pt")).eval()
        wanted = [script(resized(each.pixels, sides)[None]).numpy() for each in shown]
    np.testing.assert_allclose(encoder.encode(shown)[0], unit(np.concatenate(wanted)), atol=1e-5)
    assert encoder.batch == (1 if resize == "288" else 16)


@pytest.mark.parametrize("prep", ["laion", "laion-nojpeg"])
def test_laions_resizing_comes_before_clips_own(models, natural, prep):
    shown = pictures(natural)
    plain = load_encoder(f"clip:{models}/clip")
    laion = load_encoder(f"clip:{models}/clip?prep={prep}")
    before = [as_laion(each.pixels, jpeg=prep == "laion") for each in shown]
    wanted, _ = plain.encode([DecodedImage(each, 256, 256) for each in before])
    np.testing.assert_allclose(laion.encode(shown)[0], wanted, atol=1e-6)
    assert laion.digest != plain.digest
    assert laion.name == f"clip:{models}/clip?prep={prep}"
    assert np.abs(wanted - plain.encode(shown)[0]).max() > 1e-3


def test_half_precision_is_near_and_of_the_same_digest(models, natural):
    full = load_encoder(f"clip:{models}/clip?device=cpu")
    half = load_encoder(f"clip:{models}/clip?precision=bf16")
    assert (full.precision, full.device, half.precision) == ("fp32", "cpu", "bf16")
    assert full.digest == half.digest
    assert full.name == half.name == f"clip:{models}/clip"
    vectors, wanted = (each.encode(pictures(natural))[0] for each in (half, full))
    assert (vectors * wanted).sum(axis=1).min() > 0.99
    assert np.abs(vectors - wanted).max() > 1e-5


def test_digests_follow_weights_and_preprocessing(models, tmp_path):
    digest = load_encoder(f"clip:{models}/clip").digest
    assert load_encoder(f"clip:{make_clip(tmp_path / 'same')}").digest == digest
    assert load_encoder(f"clip:{make_clip(tmp_path / 'other', seed=1)}").digest != digest
    config = tmp_path / "same" / "preprocessor_config.json"
    text = config.read_text()
    assert '"resample": 3' in text
    config.write_text(text.replace('"resample": 3', '"resample": 2'))
    assert load_encoder(f"clip:{tmp_path / 'same'}").digest != digest


def test_the_feature_of_hf_can_be_named(models, natural):
    shown = pictures(natural)[:2]
    text = f"hf:{models}/dinov2"
    pooled, token, mean = (
        load_encoder(text + options) for options in ("", "?feature=cls", "?feature=mean")
    )
    assert mean.name == f"{text}?feature=mean"
    assert len({pooled.digest, token.digest, mean.digest}) == 3
    np.testing.assert_allclose(pooled.encode(shown)[0], token.encode(shown)[0], atol=1e-6)
    assert np.abs(pooled.encode(shown)[0] - mean.encode(shown)[0]).max() > 1e-2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hf:{}/vit?feature=pooler_output", "must be one of cls, mean for this model; got 'pool"),
        ("sscd", "encoder sscd needs FILE after its name: sscd:FILE; got 'sscd'"),
        ("clip?feature=cls", "encoder clip has no option 'feature'; its options are backend, bat"),
        ("clip:{}/clip?device=cuda:x", "must be auto, cpu, cuda, cuda:N or mps; got 'cuda:x'"),
        ("clip:{}/clip?device=cuda:99", "device cuda:99 is not there: torch "),
        ("clip:{}/clip?precision=int8", "must be one of auto, fp32, fp16, bf16; got 'int8'"),
        *(
            (f"clip:{{}}/clip?batch={count}", "option batch of encoder clip must be a whole number")
            for count in ("0", "-1", "1.5", "many", "²", "9" * 5000)
        ),
    ],
)
def test_invalid_options_are_refused_in_one_line(models, text, said):
    assert said in refusal(UsageError, load_encoder, text.format(models))


def test_numbers_beyond_the_precision_are_nan(models, natural, monkeypatch):
    """An image must not vanish as a row of zeros: NaN makes the pipeline list it."""
    encoder = load_encoder(f"clip:{models}/clip")
    run = encoder._run
    for factor in (np.inf, 0.0):
        row = np.array([factor] + [1.0] * (encoder.batch - 1), np.float32)[:, None]
        monkeypatch.setattr(encoder, "_run", lambda pixels, row=row: run(pixels) * row)
        vectors, _ = encoder.encode(pictures(natural)[:2])
        assert np.isnan(vectors[0]).all()
        assert np.isfinite(vectors[1]).all()


@pytest.mark.parametrize(("precision", "off"), [("fp32", 1e-5), ("auto", 5e-3)])
@pytest.mark.parametrize("kind", ["clip:{}/clip", "resnet152:{}/resnet"])
def test_a_gpu_makes_the_same_vectors(saved_models, natural, kind, precision, off):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    shown = pictures(natural)
    wanted, _ = load_encoder(kind.format(saved_models), device="cpu").encode(shown)
    encoder = load_encoder(kind.format(saved_models), precision=precision)
    assert encoder.device == "cuda:0"
    assert encoder.precision == ("fp16" if precision == "auto" else "fp32")
    vectors, _ = encoder.encode(shown)
    np.testing.assert_allclose(vectors, wanted, atol=off)
    np.testing.assert_array_equal(encoder.encode(shown[2:3])[0], vectors[2:3])
