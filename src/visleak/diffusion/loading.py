"""A diffusion model by folder or by name on the Hugging Face hub.

Which class is built comes from tables here, never from the folder: a folder only chooses among
what an adapter allows. Only safetensors are read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

from visleak.diffusion.model import TokenModel
from visleak.diffusion.pipeline import (
    CLIP_TEXT,
    SCHEDULERS,
    T5_TEXT,
    TOKENIZERS,
    VAES,
    LoadedPipeline,
    Pipeline,
    device_of,
    plain_settings,
    precision_of,
    quiet,
)
from visleak.encoders import weights
from visleak.encoders.network import torch_type
from visleak.encoders.weights import PATIENCE, Found, loading, refusal, refuse_missing
from visleak.errors import UsageError, VisleakError
from visleak.lazy import broken, library, member

if TYPE_CHECKING:
    import torch
    from diffusers import DiffusionPipeline

#: The file that makes a folder a pipeline, and what a model of the hub begins with.
INDEX: Final = "model_index.json"
PREFIX: Final = "hub:"
#: Parts that change images after they are made or judge them; a measurement takes them as they are.
LEFT_OUT: Final = frozenset({"safety_checker", "watermarker", "feature_extractor", "image_encoder"})
#: The library of a part, by its class, where it is not a scheduler; and what the libraries call a
#: network's weights.
LIBRARIES: Final = dict.fromkeys((*CLIP_TEXT, *T5_TEXT, *TOKENIZERS), "transformers") | (
    dict.fromkeys((*VAES, "UNet2DConditionModel", "SD3Transformer2DModel"), "diffusers")
)
STEMS: Final = {"diffusers": "diffusion_pytorch_model", "transformers": "model"}

#: The seam: class of a pipeline -> its adapter to the protocol, imported on use.
PIPELINES: Final[Mapping[str, str]] = {
    "IFPipeline": "visleak.diffusion.families:DeepFloyd",
    "StableDiffusion3Pipeline": "visleak.diffusion.families:StableDiffusion3",
    "StableDiffusionPipeline": "visleak.diffusion.families:StableDiffusion",
    "StableDiffusionXLPipeline": "visleak.diffusion.families:StableDiffusionXL",
}

#: Raised when the same files give other images or scores.
VERSION: Final = 1
#: What libraries note in a configuration and networks do not depend on.
_NOTES: Final = frozenset({"name_or_path", "transformers_version", "torch_dtype", "dtype"})
_PICKLES: Final = (".bin", ".pt", ".ckpt", ".pth")
_WHAT: Final = "a diffusion model"


def load_model(
    text: str, *, device: str = "auto", precision: str = "auto", scheduler: str = "auto"
) -> TokenModel:
    """Return the model that a text names.

    Only safetensors are read, code that comes with a model is never run, and the network is
    reached for a model of the hub alone, where it is not in the cache. Safety checkers and
    watermarks are left out, see ``about()``.

    Args:
        text: folder of a pipeline of diffusers, or ``hub:OWNER/NAME[@REVISION]``.
        device: ``auto`` (a CUDA GPU where there is one), ``cpu``, ``cuda:N`` or ``mps``.
        precision: ``fp32``, ``fp16``, ``bf16`` or ``auto``: fp16 on a CUDA GPU, else fp32.
        scheduler: ``own`` (the pipeline's), ``ddim`` (made of the settings of its own, as
            MemBench does) or ``auto``: DDIM for Stable Diffusion 1 and 2, own for all others.

    Raises:
        UsageError: an argument is not one of these.
        MissingExtra: diffusers or torch is not installed.
        VisleakError: the model could not be loaded, is damaged, or is of an unknown kind.
    """
    if scheduler not in SCHEDULERS:
        raise UsageError(f"scheduler is one of {', '.join(SCHEDULERS)}; got {scheduler!r}")
    folder = None if text.startswith(PREFIX) else folder_of(text)
    diffusers()
    running = device_of(device)
    precise = precision_of(precision, running)
    half = precise == "fp16"
    if folder is None:
        folder = hub_folder(text, half)
    plan = whole_plan(text, folder, half)
    dtype = torch_type(library("torch", "diffusion", _WHAT), precise)
    pipeline = load_pipeline(plan, folder, dtype, half)
    adapter = adapter_of(text, plan.pipeline)
    with quiet():
        adapter.prepare(pipeline, adapter.scheduled if scheduler == "auto" else scheduler)
        pipeline.to(running)
    about = {
        "family": adapter.family,
        "precision": precise,
        "scheduler": type(pipeline.scheduler).__name__,
        "schedule": plain_settings(pipeline.scheduler.config),
    }
    digest = pipeline_digest(plan, folder, half, about)
    loaded = LoadedPipeline(text, pipeline, running, precise, digest, plan.left_out)
    return cast(TokenModel, adapter(loaded))


def adapter_of(name: str, pipeline: object) -> type[Pipeline]:
    """Return the adapter of a class of pipelines."""
    dotted = PIPELINES.get(str(pipeline))
    if dotted is None:
        raise VisleakError(
            f"model {name}: {INDEX} names the class {str(pipeline)[:80]!r}; known pipelines are"
            f" {', '.join(sorted(PIPELINES))}"
        )
    module, _, own = dotted.partition(":")
    return cast("type[Pipeline]", getattr(import_module(module), own))


def diffusers() -> ModuleType:
    """Return diffusers; refuse where the extra is missing."""
    for name in ("torch", "transformers"):
        library(name, "diffusion", _WHAT)
    return library("diffusers", "diffusion", _WHAT)


# -- what a pipeline is made of -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a pipeline: the name of its folder, such as ``unet``, and its class."""

    name: str
    kind: str

    @property
    def library(self) -> str:
        """The library that makes it."""
        return LIBRARIES.get(self.kind, "diffusers")

    @property
    def is_scheduler(self) -> bool:
        """Whether it is a scheduler: a configuration without weights."""
        return self.name == "scheduler"

    @property
    def is_network(self) -> bool:
        """Whether it has weights."""
        return not self.is_scheduler and self.kind not in TOKENIZERS

    def within(self, there: Iterable[str]) -> list[str]:
        """Return the names of its folder's files, of all files of a pipeline as ``PART/NAME``."""
        start = f"{self.name}/"
        return sorted(each.removeprefix(start) for each in there if each.startswith(start))

    def weights(self, names: Iterable[str], half: bool) -> tuple[str, tuple[str, ...]]:
        """Return which files of its folder are its weights, and their variant; none where none are.

        Weights stored in half precision come first if ``half``. Of weights in several files an
        index comes first, then the pieces, whose variant comes before or after their number.
        """
        known, stem = sorted(names), STEMS[self.library]
        for variant in ("fp16", "") if half else ("", "fp16"):
            dotted = f".{variant}" if variant else ""
            if f"{stem}{dotted}.safetensors" in known:
                return variant, (f"{stem}{dotted}.safetensors",)
            index = f"{stem}.safetensors.index{dotted}.json"
            if index in known:
                number, own = r"-\d+-of-\d+", re.escape(dotted)
                shape = rf"{stem}(?:{own}{number}|{number}{own})\.safetensors"
                return variant, (index, *(each for each in known if re.fullmatch(shape, each)))
        return "", ()

    def files(self, names: Iterable[str], half: bool) -> tuple[str, ...]:
        """Return the files of its folder that images depend on, in order of name."""
        known = sorted(names)
        if self.is_network:
            return (*(n for n in known if n == "config.json"), *self.weights(known, half)[1])
        endings = "scheduler_config.json" if self.is_scheduler else (".json", ".txt", ".model")
        return tuple(name for name in known if name.endswith(endings))

    def lacking(self, names: Sequence[str], half: bool) -> str:
        """Return what is missing in its folder, in words; empty where nothing is."""
        if not names:
            return f"is not there; a pipeline has its {self.name} in that folder"
        if not self.is_network:
            file = "scheduler_config.json" if self.is_scheduler else "vocabulary (.json, .txt ...)"
            return "" if self.files(names, half) else f"has no {file}"
        if "config.json" not in names:
            return "has no config.json"
        if self.weights(names, half)[1]:
            return ""
        if any(name.endswith(_PICKLES) for name in names):
            return (
                "has its weights only as pickles (.bin), which can run code; save the pipeline"
                " again with save_pretrained(FOLDER, safe_serialization=True)"
            )
        return f"has no weights, neither {STEMS[self.library]}.safetensors nor pieces of it"


@dataclass(frozen=True, slots=True)
class Plan:
    """A pipeline to be loaded."""

    name: str  #: of the model, as the user named it
    pipeline: str  #: its class
    parts: tuple[Part, ...]  #: that are loaded
    settings: Mapping[str, object] = field(default_factory=dict)  #: further plain values
    left_out: tuple[str, ...] = ()  #: parts that the folder has and that are not loaded

    def refuse_incomplete(self, there: Sequence[str], where: str, half: bool = False) -> None:
        """Refuse a pipeline some of whose files are missing, of all there are as ``PART/NAME``."""
        for part in self.parts:
            if missing := part.lacking(part.within(there), half):
                raise VisleakError(f"model {self.name}: {where}/{part.name} {missing}")


def read_json(name: str, file: Path) -> dict[str, object]:
    """Return the names and values of a JSON file of a model."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise VisleakError(f"model {name}: {file} cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise VisleakError(f"model {name}: {file} must hold names and values")
    return content


def planned(name: str, index: Mapping[str, object]) -> Plan:
    """Return what of a pipeline is loaded, by its ``model_index.json``."""
    kind = index.get("_class_name")
    layout = adapter_of(name, kind).layout
    entries = {key: value for key, value in index.items() if not key.startswith("_")}
    there = {key: value for key, value in entries.items() if value not in (None, [None, None])}
    parts = []
    for part, allowed in layout.parts.items():
        if part in there:
            parts.append(_part(name, part, there[part], allowed))
        elif part not in layout.optional:
            raise VisleakError(f"model {name}: {INDEX} names no {part}, which a {kind} needs")
    left = sorted(key for key in LEFT_OUT & set(there) if isinstance(there[key], list))
    plain = {k: v for k, v in entries.items() if isinstance(v, bool | int | float | str)}
    return Plan(name, str(kind), tuple(parts), plain, tuple(left))


def _part(name: str, part: str, entry: object, allowed: tuple[str, ...]) -> Part:
    match entry:
        case ["diffusers", str(kind)] if part == "scheduler":
            fits = kind.isidentifier() and kind.endswith("Scheduler")
        case [library, str(kind)]:
            fits = kind in allowed and library == LIBRARIES[kind]
        case _:
            fits, kind = False, ""
    if fits:
        return Part(part, kind)
    wanted = "a scheduler of diffusers" if part == "scheduler" else " or ".join(allowed)
    raise VisleakError(
        f"model {name}: {INDEX} says that its {part} is {json.dumps(entry)[:120]}; it must be"
        f" {wanted}, and code that comes with a model is never run"
    )


def whole_plan(name: str, folder: Path, half: bool) -> Plan:
    """Return what of a folder's pipeline is loaded, all of which is there."""
    plan = planned(name, read_json(name, folder / INDEX))
    there = [each.relative_to(folder).as_posix() for each in folder.glob("*/*")]
    plan.refuse_incomplete(there, str(folder), half)
    for part in (each for each in plan.parts if each.is_network):
        first, *pieces = part.weights(part.within(there), half)[1]
        if not first.endswith(".json"):
            continue
        index = folder / part.name / first
        named = read_json(name, index).get("weight_map")
        if not isinstance(named, dict):
            raise VisleakError(f"model {name}: {index} has no weight_map")
        # names outside the pattern would be read, and be in no digest
        missing = sorted({str(each) for each in named.values()} - set(pieces))
        if missing or not named:
            lacking = missing[0] if missing else "anything"
            raise VisleakError(
                f"model {name}: {index} names pieces of the weights that are not beside it:"
                f" {len(missing)}, such as {lacking[:80]}"
            )
    return plan


# -- from disk ------------------------------------------------------------------------------------


def folder_of(text: str) -> Path:
    """Return the folder that a text names."""
    path = Path(text).expanduser()
    if path.is_file():
        raise VisleakError(
            f"model {text}: one file is not a pipeline, its tokenizer and settings are missing;"
            " load it with from_single_file of diffusers, save_pretrained(FOLDER), and give FOLDER"
        )
    if not path.is_dir():
        raise UsageError(
            f"model: there is no folder {text}; give the folder of a pipeline of diffusers (with"
            f" {INDEX}), or hub:OWNER/NAME for one of the Hugging Face hub"
        )
    if not (path / INDEX).is_file():
        raise VisleakError(
            f"model {text}: the folder {path} has no {INDEX}; give one with a pipeline of"
            " diffusers, as save_pretrained writes it"
        )
    return path


def load_pipeline(plan: Plan, folder: Path, dtype: torch.dtype, half: bool) -> DiffusionPipeline:
    """Return a pipeline of diffusers on the CPU, its weights frozen."""
    with quiet():
        factory = member(diffusers(), plan.pipeline, _WHAT)
        given = {part.name: load_part(plan.name, folder, part, dtype, half) for part in plan.parts}
        # further arguments of the class
        for key, parameter in signature(factory.__init__).parameters.items():
            if key in given or key == "self":
                continue
            if key in ("requires_safety_checker", "add_watermarker"):
                given[key] = False
            elif key in plan.settings:
                given[key] = plan.settings[key]
            elif parameter.default is parameter.empty:
                given[key] = None
        with loading(f"model {plan.name}: its parts do not make a {plan.pipeline}"):
            return factory(**given)


def load_part(name: str, folder: Path, part: Part, dtype: torch.dtype, half: bool) -> object:
    """Return one part, loaded by its own library."""
    source = str(folder / part.name)
    factory = member(library(part.library, "diffusion", _WHAT), part.kind, f"model {name}")
    if part.is_scheduler and not issubclass(factory, diffusers().SchedulerMixin):
        raise VisleakError(f"model {name}: its scheduler {part.kind} is not one of diffusers")
    options: dict[str, object] = {"local_files_only": True}
    if part.library == "transformers":
        options["trust_remote_code"] = False
    if part.is_network:
        options |= {"use_safetensors": True, "torch_dtype": dtype, "output_loading_info": True}
        if variant := part.weights(os.listdir(source), half)[0]:
            options["variant"] = variant
    with loading(f"model {name}: its {part.name} cannot be loaded from {source}"):
        try:
            loaded = factory.from_pretrained(source, **options)
        except ImportError as error:
            raise broken(part.library, f"model {name}", error) from error
    if not part.is_network:
        return loaded
    network, about = loaded
    keys = (*about["missing_keys"], *about["mismatched_keys"])
    missing = frozenset(str(key[0] if isinstance(key, tuple) else key) for key in keys)
    refuse_missing(Found(name, folder / part.name), missing)
    return network.eval().requires_grad_(False)


def pipeline_digest(plan: Plan, folder: Path, half: bool, about: Mapping[str, object]) -> str:
    """Return 32 hexadecimal digits of all that images depend on; the place is not part of it."""
    hasher = hashlib.blake2b(digest_size=16)
    start = {"version": VERSION, "pipeline": plan.pipeline, "settings": dict(plan.settings)}
    hasher.update(json.dumps([start, dict(about)], sort_keys=True).encode())
    for part in sorted(plan.parts, key=lambda part: part.name):
        inside = folder / part.name
        for file in part.files([each.name for each in inside.iterdir()], half):
            hasher.update(json.dumps([part.name, part.kind, file]).encode())
            if file.endswith("config.json"):
                # without the libraries' own notes
                content = plain_settings(read_json(plan.name, inside / file))
                used = {key: value for key, value in content.items() if key not in _NOTES}
                text = json.dumps(used, sort_keys=True).encode()
                hasher.update(hashlib.blake2b(text).digest())
            else:
                with (inside / file).open("rb") as stream:
                    own = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16))
                hasher.update(own.digest())
    return hasher.hexdigest()


# -- from the hub ---------------------------------------------------------------------------------


def hub_folder(text: str, half: bool) -> Path:
    """Return the folder of ``hub:OWNER/NAME[@REVISION]``: from the cache if whole, else fetched."""
    found = re.fullmatch(r"hub:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", text, re.ASCII)
    if found is None:
        raise UsageError(
            f"model must be a folder or hub:OWNER/NAME, or hub:OWNER/NAME@REVISION; got {text!r}"
        )
    repository, revision = found.groups()
    hub = library("huggingface_hub", "diffusion", f"model {text}")
    index = hub.try_to_load_from_cache(repository, INDEX, revision=revision)
    if isinstance(index, str):
        # an interrupted download; what else is wrong, the copy of the hub will show
        with suppress(VisleakError):
            whole_plan(repository, Path(index).parent, half)
            return Path(index).parent
    try:
        with weights.quiet(progress=sys.stderr.isatty()):
            return _fetched(hub, repository, revision, text, half)
    except VisleakError:
        raise
    except Exception as error:
        # the hub's libraries let through whatever their own raise: a dozen kinds
        raise VisleakError(
            f"model {text} is not in the cache {hub.constants.HF_HUB_CACHE}, and"
            f" {hub.constants.ENDPOINT} {refusal(error)}; on a machine with access: `hf download"
            f" {repository} --local-dir FOLDER`, then give FOLDER"
        ) from error


def _fetched(hub: ModuleType, repository: str, revision: str | None, text: str, half: bool) -> Path:
    where = f"{hub.constants.ENDPOINT}/{repository}"
    info = hub.HfApi().model_info(repository, revision=revision, timeout=PATIENCE)
    there = [str(each.rfilename) for each in info.siblings]
    if INDEX not in there:
        raise VisleakError(
            f"model {text}: {where} has no {INDEX}; it is not a pipeline of diffusers"
        )
    options = {"revision": revision, "etag_timeout": PATIENCE}
    plan = planned(text, read_json(text, Path(hub.hf_hub_download(repository, INDEX, **options))))
    plan.refuse_incomplete(there, where)
    files = ((part.name, part.files(part.within(there), half)) for part in plan.parts)
    wanted = [INDEX, *(f"{folder}/{name}" for folder, names in files for name in names)]
    return Path(hub.snapshot_download(repository, allow_patterns=wanted, **options))
