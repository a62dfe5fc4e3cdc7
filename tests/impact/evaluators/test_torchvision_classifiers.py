"""timm and torchvision, which need a torchvision that fits; `.ci/run` makes one where it can."""

from importlib import import_module

import numpy as np
import pytest
import small_classifiers as small
from PIL import Image

from visleak.impact.evaluators.classes import classes_of
from visleak.impact.evaluators.classifiers import load_classifier
from visleak.records import DecodedImage

torch = pytest.importorskip("torch")


def working(name):
    """Return a library, or skip."""
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{name} cannot be imported here ({type(error).__name__}: {error})")


@pytest.fixture(scope="module")
def timm():
    return working("timm")


@pytest.fixture(scope="module")
def torchvision():
    return working("torchvision")


def checked(text, module, transform, natural):
    """Compare a classifier with a library's own transform and network."""
    pictures = [np.ascontiguousarray(natural[name][:220, :300]) for name in ("coffee", "rocket")]
    with torch.inference_mode():
        inputs = torch.stack([transform(Image.fromarray(each)) for each in pictures])
        wanted = module.eval()(inputs).numpy()
    model = load_classifier(text, device="cpu", batch=2)
    found = model.forward([model.preparation(DecodedImage(each, 300, 220)) for each in pictures])
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_weights_in_an_architecture_of_timm(timm, tmp_path, natural):
    module = small.lively(timm.create_model("resnet10t", num_classes=7))
    torch.save(module.state_dict(), tmp_path / "w.pt")
    config = timm.data.resolve_model_data_config(module)
    transform = timm.data.create_transform(**config)
    checked(f"checkpoint:{tmp_path}/w.pt?arch=resnet10t", module, transform, natural)


def test_weights_in_an_architecture_of_torchvision(torchvision, tmp_path, natural):
    """torchvision's first evaluation: short side 256, the central 224 x 224."""
    models, transforms = torchvision.models, torchvision.transforms
    module = small.lively(models.get_model("mobilenet_v3_small", weights=None, num_classes=7))
    torch.save(module.state_dict(), tmp_path / "w.pt")
    transform = transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize(small.RECIPE["mean"], small.RECIPE["std"]),
        ]
    )
    checked(f"checkpoint:{tmp_path}/w.pt?arch=mobilenet_v3_small", module, transform, natural)


def test_a_folder_of_timm(timm, tmp_path, natural):
    module = small.lively(timm.create_model("resnet10t", num_classes=3))
    told = {"label_names": ["n1", "n2", "n3"], "label_descriptions": {"n1": "cat, Felis"}}
    timm.models.save_for_hf(module, tmp_path / "m", model_config=told)
    config = timm.data.resolve_model_data_config(module)
    transform = timm.data.create_transform(**config)
    checked(f"timm:{tmp_path}/m", module, transform, natural)
    names = load_classifier(f"timm:{tmp_path}/m", device="cpu").names
    assert names == (("n1", "cat, Felis", "cat", "Felis"), ("n2",), ("n3",))


def test_classes_of_imagenet(timm, tmp_path):
    module = timm.create_model("resnet10t", num_classes=1000)
    timm.models.save_for_hf(module, tmp_path / "m")
    model = load_classifier(f"timm:{tmp_path}/m", device="cpu")
    import pyarrow as pa

    labels = pa.array(["n01440764", "Great White Shark"])
    made = classes_of(model.width, labels, model.names)
    assert made.targets(labels).tolist() == [0, 2]
