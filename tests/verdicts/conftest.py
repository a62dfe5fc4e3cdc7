"""A small audit to lay verdicts over."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

import visleak


def save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), pixels[..., ::-1])


@pytest.fixture(scope="session")
def audited(tmp_path_factory: pytest.TempPathFactory, natural: dict[str, np.ndarray]) -> Path:
    folder = tmp_path_factory.mktemp("judged")
    small = {name: cv2.resize(picture, (96, 96)) for name, picture in natural.items()}
    for name in ("astronaut", "chelsea", "coffee", "rocket", "camera"):
        save(folder / "train" / "a" / f"{name}.png", small[name])
    for name in ("coins", "moon", "brick"):
        save(folder / "train" / "b" / f"{name}.png", small[name])
    save(folder / "test" / "a" / "copy.png", small["astronaut"])
    save(folder / "test" / "a" / "mirrored.png", small["chelsea"][:, ::-1])
    save(folder / "test" / "b" / "other.png", small["grass"])
    save(folder / "test" / "b" / "brighter.png", cv2.convertScaleAbs(small["grass"], beta=25))
    save(folder / "test" / "b" / "blank.png", np.full((96, 96, 3), 40, np.uint8))
    visleak.audit(folder / "test", folder / "train", out=folder / "audit", workers=1, cache=None)
    return folder / "audit"
