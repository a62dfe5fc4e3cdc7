"""Small sets of natural crops, easy to tell apart."""

import pytest
from PIL import Image
from train_making import EACH, KINDS, crops


@pytest.fixture(scope="session")
def toy(natural, tmp_path_factory):
    """Return a folder of three classes with thirty crops each."""
    root = tmp_path_factory.mktemp("toy") / "toy"
    for seed, kind in enumerate(KINDS):
        (root / kind).mkdir(parents=True)
        for number, pixels in enumerate(crops(natural[kind], EACH, seed)):
            Image.fromarray(pixels).save(root / kind / f"{number:02}.png")
    return root
