"""What a folder of a pipeline says of itself: ``model_index.json``, read and judged.

Which class is built comes from tables here, never from the folder: a folder only chooses among
what an adapter allows.

A pipeline's parts, loaded one by one from a folder by the class that was allowed.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from visleak.encoders import weights
from visleak.encoders.libraries import broken, library, member, said
from visleak.errors import VisleakError

if TYPE_CHECKING:
    import torch
    from diffusers import DiffusionPipeline

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

#: The library of a part, by its class, where it is not a scheduler.
LIBRARIES: Final = dict.fromkeys((*CLIP_TEXT, *T5_TEXT, *TOKENIZERS), "transformers") | (
    dict.fromkeys((*VAES, "UNet2DConditionModel", "SD3Transformer2DModel"), "diffusers")
)


@dataclass(frozen=True, slots=True)
class Layout:
    """What a pipeline of one class is made of."""

    #: by name, the classes that it may be of; a scheduler may be any of the library
    parts: Mapping[str, tuple[str, ...]]
    optional: frozenset[str] = frozenset()  #: parts that may be absent


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a pipeline."""

    name: str  #: of its folder, such as ``unet``
    kind: str  #: its class

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
    """A pipeline to be loaded."""

    pipeline: str  #: its class
    parts: tuple[Part, ...]  #: that are loaded
    #: further plain values for the pipeline
    settings: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  #: parts that the folder has and that are not loaded


def read_json(name: str, file: Path) -> dict[str, Any]:
    """Return the names and values of a JSON file of a model."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise VisleakError(f"model {name}: {file} cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise VisleakError(f"model {name}: {file} must hold names and values")
    return content


def plan_of(name: str, index: Mapping[str, Any], layout: Layout) -> Plan:
    """Return what of a pipeline is loaded."""
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


#: What the two libraries call a network's weights.
STEMS: Final = {"diffusers": "diffusion_pytorch_model", "transformers": "model"}
_PICKLES: Final = (".bin", ".pt", ".ckpt", ".pth")


@dataclass(frozen=True, slots=True)
class Weights:
    """Files of a network."""

    variant: str  #: ``fp16``, or ``""`` for the plain ones
    #: names within the part's folder; an index first, then the pieces it names
    files: tuple[str, ...]


def weights_of(part: Part, there: Iterable[str], half: bool = False) -> Weights | None:
    """Return which files of a part's folder are its weights; ``None`` where none are.

    >>> unet = Part("unet", "UNet2DConditionModel")
    >>> weights_of(unet, ["config.json", "diffusion_pytorch_model.fp16.safetensors"])
    Weights(variant='fp16', files=('diffusion_pytorch_model.fp16.safetensors',))
    """
    names, stem = sorted(there), STEMS[part.library]
    for variant in ("fp16", "") if half else ("", "fp16"):
        dotted = f".{variant}" if variant else ""
        if f"{stem}{dotted}.safetensors" in names:
            return Weights(variant, (f"{stem}{dotted}.safetensors",))
        index = f"{stem}.safetensors.index{dotted}.json"
        if index in names:
            # the variant stands before the number of the piece or after it
            number, end = r"-\d+-of-\d+", r"\.safetensors"
            escaped = re.escape(dotted)
            shape = rf"{stem}(?:{escaped}{number}|{number}{escaped}){end}"
            pieces = [name for name in names if re.fullmatch(shape, name)]
            return Weights(variant, (index, *pieces))
    return None


def files_of(part: Part, there: Iterable[str], half: bool = False) -> tuple[str, ...]:
    """Return the files of a part's folder that its images depend on, in order of name."""
    names = sorted(there)
    if part.is_scheduler:
        return tuple(name for name in names if name == "scheduler_config.json")
    if part.is_tokenizer:
        return tuple(name for name in names if name.endswith((".json", ".txt", ".model")))
    weights = weights_of(part, names, half)
    config = tuple(name for name in names if name == "config.json")
    return (*config, *(weights.files if weights else ()))


def wanted(plan: Plan, there: Iterable[str], half: bool = False) -> list[str]:
    """Return the files of a whole pipeline that are needed, as paths from its folder."""
    names = list(there)
    return [INDEX] + [
        f"{part.name}/{name}"
        for part in plan.parts
        for name in files_of(part, files_in(part, names), half)
    ]


def refuse_incomplete(
    name: str,
    plan: Plan,
    there: Iterable[str],
    where: str,
    *,
    folder: Path | None = None,
    half: bool = False,
) -> None:
    """Refuse a pipeline some of whose files are missing."""
    names = list(there)
    for part in plan.parts:
        inside = files_in(part, names)
        weights = weights_of(part, inside, half) if part.is_network else None
        missing = ""
        if not inside:
            missing = f"is not there; a pipeline has its {part.name} in that folder"
        elif part.is_network and "config.json" not in inside:
            missing = "has no config.json"
        elif part.is_network and weights is None and any(n.endswith(_PICKLES) for n in inside):
            missing = (
                "has its weights only as pickles (.bin), which can run code; save the pipeline"
                " again with save_pretrained(FOLDER, safe_serialization=True)"
            )
        elif part.is_network and weights is None:
            stem = STEMS[part.library]
            missing = f"has no weights, neither {stem}.safetensors nor pieces of it"
        elif not part.is_network and not files_of(part, inside):
            file = "scheduler_config.json" if part.is_scheduler else "vocabulary (.json, .txt ...)"
            missing = f"has no {file}"
        if missing:
            raise VisleakError(f"model {name}: {where}/{part.name} {missing}")
        if folder is not None and weights is not None and weights.files[0].endswith(".json"):
            _refuse_missing_pieces(name, folder / part.name / weights.files[0], weights)


def _refuse_missing_pieces(name: str, index: Path, weights: Weights) -> None:
    named = read_json(name, index).get("weight_map")
    if not isinstance(named, dict):
        raise VisleakError(f"model {name}: {index} has no weight_map")
    # names outside the pattern would be read, and be in no digest
    missing = sorted({str(each) for each in named.values()} - set(weights.files[1:]))
    if missing or not named:
        lacking = missing[0] if missing else "anything"
        raise VisleakError(
            f"model {name}: {index} names pieces of the weights that are not beside it:"
            f" {len(missing)}, such as {lacking[:80]}"
        )


def files_in(part: Part, names: Iterable[str]) -> list[str]:
    """Return the files of a part's folder, of all files of a pipeline as ``PART/NAME``."""
    start = f"{part.name}/"
    return [each.removeprefix(start) for each in names if each.startswith(start)]


_WHAT = "a diffusion model"


def diffusers() -> Any:
    """Return diffusers."""
    for name in ("torch", "transformers", "diffusers"):
        library(name, "diffusion", _WHAT)
    return library("diffusers", "diffusion", _WHAT)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the libraries from writing to the terminal; what matters of it is checked or raised."""
    logger = logging.getLogger("diffusers")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with weights.quiet():
            yield
    finally:
        logger.setLevel(level)


def load_pipeline(
    name: str, folder: Path, plan: Plan, dtype: torch.dtype, half: bool
) -> DiffusionPipeline:
    """Return a pipeline of diffusers on the CPU, its weights frozen."""
    with quiet():
        factory = member(diffusers(), plan.pipeline, _WHAT)
        parts = {part.name: load_part(name, folder, part, dtype, half) for part in plan.parts}
        try:
            return factory(**parts, **_rest(factory, plan, set(parts)))
        except Exception as error:
            # the library checks its parts in many ways
            raise VisleakError(
                f"model {name}: its parts do not make a {plan.pipeline} ({said(error)})"
            ) from error


def _rest(factory: type[DiffusionPipeline], plan: Plan, given: set[str]) -> dict[str, object]:
    """Return what a pipeline needs in addition to the parts that are loaded."""
    rest: dict[str, object] = {}
    for key, parameter in signature(factory.__init__).parameters.items():
        if key in given or key == "self":
            continue
        if key in ("requires_safety_checker", "add_watermarker"):
            rest[key] = False
        elif key in plan.settings:
            rest[key] = plan.settings[key]
        elif parameter.default is parameter.empty:
            rest[key] = None
    return rest


def load_part(name: str, folder: Path, part: Part, dtype: torch.dtype, half: bool) -> Any:
    """Return one part."""
    source = str(folder / part.name)
    module = library(part.library, "diffusion", _WHAT)
    factory = member(module, part.kind, f"model {name}")
    try:
        if part.is_network:
            chosen = weights_of(part, os.listdir(source), half)
            options: dict[str, Any] = (
                {"variant": chosen.variant} if chosen and chosen.variant else {}
            )
            if part.library == "transformers":
                options["trust_remote_code"] = False
            loaded, about = factory.from_pretrained(
                source,
                local_files_only=True,
                use_safetensors=True,
                torch_dtype=dtype,
                output_loading_info=True,
                **options,
            )
        elif part.is_tokenizer:
            return factory.from_pretrained(source, local_files_only=True, trust_remote_code=False)
        elif issubclass(factory, library("diffusers", "diffusion", _WHAT).SchedulerMixin):
            return factory.from_pretrained(source, local_files_only=True)
        else:
            raise VisleakError(f"model {name}: {part.kind} of its scheduler is none")
    except VisleakError:
        raise
    except ImportError as error:
        raise broken(part.library, f"model {name}", error) from error
    except Exception as error:
        # the libraries raise OSError, ValueError, KeyError, RuntimeError, SafetensorError ...
        raise VisleakError(
            f"model {name}: its {part.name} cannot be loaded from {source} ({said(error)})"
        ) from error
    keys = (key for kind in ("missing_keys", "mismatched_keys") for key in about[kind])
    missing = {str(key[0] if isinstance(key, tuple) else key) for key in keys}
    if missing:
        raise VisleakError(
            f"model {name}: the weights in {source} lack {len(missing)} tensors, such as"
            f" {min(missing)}; they are of another network than config.json says"
        )
    return loaded.eval().requires_grad_(False)
