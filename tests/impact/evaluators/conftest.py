"""Labelled images and models for the tests of evaluators."""

import pytest
import small_classifiers as small

from visleak.formats import open_image_set


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread():
    """Both cores are busy with tests already: threads of torch would only wait for each other."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def labelled(tmp_path_factory, natural):
    """Return a folder of 36 images in 9 folders, the names of which are their labels."""
    return small.write_pictures(tmp_path_factory.mktemp("labelled") / "pictures", natural)


@pytest.fixture(scope="session")
def networks(tmp_path_factory):
    """Return a folder with one ResNet-20 of 9 classes in every kind of file, and its recipe."""
    import torch
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("networks")
    module = small.cifar_resnet(9)
    small.write_onnx(folder / "r.onnx", module)
    small.write_script(folder / "r.ts", module)
    state = module.state_dict()
    torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, folder / "r.th")
    save_file(state, folder / "r.safetensors")
    return folder


@pytest.fixture
def images(labelled):
    return open_image_set(str(labelled))


@pytest.fixture
def resnet(networks):
    return f"checkpoint:{networks}/r.th?arch=resnet20"
