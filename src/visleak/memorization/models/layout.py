"""What a folder of a pipeline says of itself: ``model_index.json``, read and judged.

Which class is built comes from tables here, never from the folder: a folder only chooses among
what an adapter allows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from visleak.errors import VisleakError

#: The file that makes a folder a pipeline.
INDEX: Final = "model_index.json"

#: Parts that change images after they are made or judge them; a measurement takes them as they are.
LEFT_OUT: Final = frozenset({"safety_checker", "watermarker", "feature_extractor", "image_encoder"})

CLIP_TEXT: Final = ("CLIPTextModel", "CLIPTextModelWithProjection")
T5_TEXT: Final = ("T5EncoderModel",)
TOKENIZERS: Final = (
    "CLIPTokenizer",
    "CLIPTokenizerFast",
    "T5Tokenizer",
    "T5TokenizerFast",
    "PreTrainedTokenizerFast",
    "TokenizersBackend",
)
VAES: Final = ("AutoencoderKL", "AutoencoderTiny", "AsymmetricAutoencoderKL")

#: The library of a part, by its class, where it is no scheduler.
LIBRARIES: Final = dict.fromkeys((*CLIP_TEXT, *T5_TEXT, *TOKENIZERS), "transformers") | (
    dict.fromkeys((*VAES, "UNet2DConditionModel", "SD3Transformer2DModel"), "diffusers")
)


@dataclass(frozen=True, slots=True)
class Layout:
    """What a pipeline of one class is made of.

    Attributes:
        parts: by name, the classes that it may be of; a scheduler may be any of the library.
        optional: parts that may be absent.
    """

    parts: Mapping[str, tuple[str, ...]]
    optional: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a pipeline.

    Attributes:
        name: of its folder, such as ``unet``.
        kind: its class.
    """

    name: str
    kind: str

    @property
    def is_scheduler(self) -> bool:
        """Whether it is a scheduler: a configuration without weights."""
        return self.name == "scheduler"

    @property
    def is_tokenizer(self) -> bool:
        """Whether it takes text apart: files without weights."""
        return self.kind in TOKENIZERS

    @property
    def is_network(self) -> bool:
        """Whether it has weights."""
        return not (self.is_scheduler or self.is_tokenizer)

    @property
    def library(self) -> str:
        """The library that makes it."""
        return LIBRARIES.get(self.kind, "diffusers")


@dataclass(frozen=True, slots=True)
class Plan:
    """A pipeline to be loaded.

    Attributes:
        pipeline: its class.
        parts: that are loaded.
        settings: further plain values for the pipeline.
        left_out: parts that the folder has and that are not loaded.
    """

    pipeline: str
    parts: tuple[Part, ...]
    settings: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def read_json(name: str, file: Path) -> dict[str, Any]:
    """Return the names and values of a JSON file of a model.

    Raises:
        VisleakError: it is missing or damaged.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise VisleakError(f"model {name}: {file} cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise VisleakError(f"model {name}: {file} must hold names and values")
    return content


def plan_of(name: str, index: Mapping[str, Any], layout: Layout) -> Plan:
    """Return what of a pipeline is loaded.

    Args:
        name: of the model, for messages.
        index: content of ``model_index.json``.
        layout: of its class.

    Raises:
        VisleakError: a part is missing, or of a class that is not allowed.
    """
    entries = {key: value for key, value in index.items() if not key.startswith("_")}
    parts = []
    for part, allowed in layout.parts.items():
        entry = entries.get(part)
        if entry is None or entry == [None, None]:
            if part in layout.optional:
                continue
            raise VisleakError(
                f"model {name}: {INDEX} names no {part}, which a {index.get('_class_name')} needs"
            )
        parts.append(_part(name, part, entry, allowed))
    settings = {
        key: value for key, value in entries.items() if isinstance(value, bool | int | float | str)
    }
    rest = sorted(LEFT_OUT & {key for key, value in entries.items() if value != [None, None]})
    return Plan(
        str(index.get("_class_name")),
        tuple(parts),
        settings,
        tuple(key for key in rest if isinstance(entries[key], list)),
    )


def _part(name: str, part: str, entry: object, allowed: tuple[str, ...]) -> Part:
    """Return a part that ``model_index.json`` names by library and class."""
    if isinstance(entry, list) and len(entry) == 2 and all(isinstance(e, str) for e in entry):
        library, kind = entry
        if part == "scheduler":
            fits = library == "diffusers" and kind.isidentifier() and kind.endswith("Scheduler")
        else:
            fits = kind in allowed and library == LIBRARIES[kind]
        if fits:
            return Part(part, kind)
    wanted = "a scheduler of diffusers" if part == "scheduler" else " or ".join(allowed)
    raise VisleakError(
        f"model {name}: {INDEX} says that its {part} is {json.dumps(entry)[:120]}; it must be"
        f" {wanted}, and code that comes with a model is never run"
    )
