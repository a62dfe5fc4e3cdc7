"""Pictures made for the tests of this room."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

Save = Callable[..., Any]


def smooth(width: int = 48, height: int = 32, seed: int = 0) -> Image.Image:
    """A picture without any symmetry, that lossy formats keep well."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    Image.init()
    if kind not in Image.SAVE:
        pytest.skip(f"this Pillow writes no {kind}")
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


@pytest.fixture
def picture() -> Callable[..., Image.Image]:
    return smooth


@pytest.fixture
def encode() -> Callable[..., bytes]:
    return encoded


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Write a picture (or bytes) below tmp_path; the ending says the format."""

    def write(name: str, content: Image.Image | bytes | str | None = None, seed: int = 0) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            (content or smooth(seed=seed)).save(path)
        return path

    return write
