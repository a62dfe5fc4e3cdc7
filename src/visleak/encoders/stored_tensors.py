"""The weights of a model as its files name them, for its digest.

Not those of the loaded module: another version of transformers gives its parts other names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from visleak.encoders.weights import TRANSFORMERS


class StoredTensors(Mapping[str, Any]):
    """Tensors by name, read from the files one at a time.

    Args:
        folder: of a model that transformers could load.
    """

    def __init__(self, folder: Path) -> None:
        name = next(each for each in TRANSFORMERS.weights if (folder / each).is_file())
        files = [name]
        if name.endswith(".index.json"):
            index = json.loads((folder / name).read_text(encoding="utf-8"))
            files = sorted(set(index["weight_map"].values()))
        self._readers: dict[str, Callable[[], Any]] = {}
        for file in files:
            self._readers |= _readers(folder / file)

    def __getitem__(self, name: str) -> Any:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def _readers(file: Path) -> dict[str, Callable[[], Any]]:
    """Return, by the name of a tensor in a file, what reads it."""
    if file.suffix == ".safetensors":
        from safetensors import safe_open

        handle: Any = safe_open(file, framework="pt")
        return {name: partial(handle.get_tensor, name) for name in handle.keys()}  # noqa: SIM118
    import torch

    stored = torch.load(file, map_location="cpu", weights_only=True)
    return {
        name: partial(stored.__getitem__, name)
        for name, value in stored.items()
        if isinstance(value, torch.Tensor)
    }
