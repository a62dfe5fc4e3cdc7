"""A small audit with two leaks."""

import pytest

from toy_audit import World


@pytest.fixture
def world():
    """Return two test images that leak, one that does not, one blank."""
    return World(
        images={
            "test": [("=a()", 1, False), ("b", 2, False), ("c", 3, False), ("blank", 4, True)],
            "train": [("x", 1, False), ("y", 12, False), ("z", 13, False), ("blank", 4, False)],
        },
        pairs=[
            ("test", "=a()", "train", "x", 1.0, "exact"),
            ("test", "b", "train", "y", 0.8, "near"),
            ("test", "b", "train", "z", 0.7, "similar"),
            ("test", "c", "train", "z", 0.65, "different"),
            ("test", "blank", "train", "blank", 1.0, "exact"),
        ],
        comparisons=[("test", "train")],
    )


@pytest.fixture
def audited(world, tmp_path):
    """Return its audit folder."""
    return world.write(tmp_path / "audited")
