"""A small audit with a mirrored and an exact copy."""

import pytest
from PIL import Image

import visleak


@pytest.fixture
def folder(natural, tmp_path):
    """A mirrored copy and an exact one, both of one training image."""
    train = natural["astronaut"][:96, :96]
    test = [train[:, ::-1], train, natural["coffee"][:96, :96]]
    for side, images in (("train", [train]), ("test", test)):
        (tmp_path / side).mkdir()
        for number, pixels in enumerate(images):
            Image.fromarray(pixels).save(tmp_path / side / f"{number}.png")
    out = tmp_path / "audit"
    visleak.audit(tmp_path / "test", tmp_path / "train", out=out, within=False)
    return out
