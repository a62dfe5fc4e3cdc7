"""Models for the tests of encoders."""

import pytest
import tiny_models

import toy_clip


@pytest.fixture(scope="session")
def saved_models(tmp_path_factory):
    """Return a folder with small models of transformers and a TorchScript file."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    # both cores are busy with tests already: threads of torch would only wait for each other
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    toy_clip.make_clip(folder / "clip")
    tiny_models.make_dinov2(folder / "dinov2")
    tiny_models.make_resnet(folder / "resnet")
    tiny_models.make_vit(folder / "vit")
    tiny_models.make_sscd(folder / "sscd.torchscript.pt")
    return folder


@pytest.fixture
def models(saved_models, monkeypatch):
    """Return the same folder where ``device=auto`` is the CPU, whatever the machine has."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return saved_models


@pytest.fixture(scope="module")
def open_clip():
    return tiny_models.working("open_clip")
