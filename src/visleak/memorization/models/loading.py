"""A diffusion model by folder or by name on the Hugging Face hub."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from visleak.encoders import weights
from visleak.encoders.libraries import library
from visleak.encoders.weights import PATIENCE, refusal
from visleak.errors import UsageError, VisleakError
from visleak.memorization.model import TokenModel
from visleak.memorization.models.parts import (
    INDEX,
    Plan,
    diffusers,
    files_of,
    load_pipeline,
    plan_of,
    quiet,
    read_json,
    refuse_incomplete,
    wanted,
)
from visleak.memorization.models.pipeline import (
    SCHEDULERS,
    Loaded,
    PromptedPipeline,
    device_of,
    dtype_of,
    plain_settings,
    precision_of,
)

#: Grows when the same files come to give other images or scores.
VERSION: Final = 1

#: What libraries note in a configuration and networks do not depend on.
_NOTES: Final = frozenset({"name_or_path", "transformers_version", "torch_dtype", "dtype"})

_BLOCK: Final = 1 << 22


def pipeline_digest(
    name: str, folder: Path, plan: Plan, half: bool, about: Mapping[str, object]
) -> str:
    """Return 32 hexadecimal digits; the folder's place and name are not part of them.

    Weights are read once, as a stream.
    """
    hasher = hashlib.blake2b(digest_size=16)
    start = {"version": VERSION, "pipeline": plan.pipeline, "settings": dict(plan.settings)}
    hasher.update(json.dumps([start, dict(about)], sort_keys=True).encode())
    for part in sorted(plan.parts, key=lambda part: part.name):
        inside = folder / part.name
        for file in files_of(part, [each.name for each in inside.iterdir()], half):
            hasher.update(json.dumps([part.name, part.kind, file]).encode())
            hasher.update(_file_digest(name, inside / file))
    return hasher.hexdigest()


def _file_digest(name: str, file: Path) -> bytes:
    hasher = hashlib.blake2b(digest_size=16)
    if file.name.endswith("config.json"):
        content = plain(read_json(name, file))
        return hashlib.blake2b(json.dumps(content, sort_keys=True).encode()).digest()
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            hasher.update(block)
    return hasher.digest()


def plain(config: Mapping[str, object]) -> dict[str, object]:
    """Return a configuration without the libraries' own notes.

    >>> plain({"_diffusers_version": "0.30", "beta_start": 0.1})
    {'beta_start': 0.1}
    """
    return {
        key: value for key, value in config.items() if not key.startswith("_") and key not in _NOTES
    }


#: What a model of the hub begins with.
PREFIX: Final = "hub:"


def hub_name(text: str) -> tuple[str, str | None]:
    """Return repository and revision (branch, tag or commit) of ``hub:OWNER/NAME[@REVISION]``.

    >>> hub_name("hub:someone/model@fp16")
    ('someone/model', 'fp16')
    """
    found = re.fullmatch(r"hub:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", text, re.ASCII)
    if found is None:
        raise UsageError(
            f"model must be a folder or hub:OWNER/NAME, or hub:OWNER/NAME@REVISION; got {text!r}"
        )
    return found[1], found[2]


def hub_folder(text: str, half: bool) -> Path:
    """Return the folder of a pipeline of the hub: from the cache if whole, else fetched.

    Only files that are needed are fetched.
    """
    repository, revision = hub_name(text)
    hub = library("huggingface_hub", "diffusion", f"model {text}")
    if cached := _cached(hub, repository, revision, half):
        return cached
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


def _cached(hub: ModuleType, repository: str, revision: str | None, half: bool) -> Path | None:
    """Return a pipeline's folder in the cache if everything needed is there."""
    index = hub.try_to_load_from_cache(repository, INDEX, revision=revision)
    if not isinstance(index, str):
        return None
    folder = Path(index).parent
    try:
        whole_plan(repository, folder, half)
    except VisleakError:
        # an interrupted download; what else is wrong, the copy of the hub will show
        return None
    return folder


def _fetched(hub: ModuleType, repository: str, revision: str | None, text: str, half: bool) -> Path:
    where = f"{hub.constants.ENDPOINT}/{repository}"
    info = hub.HfApi().model_info(repository, revision=revision, timeout=PATIENCE)
    there = [str(each.rfilename) for each in info.siblings]
    if INDEX not in there:
        raise VisleakError(
            f"model {text}: {where} has no {INDEX}; it is not a pipeline of diffusers"
        )
    index = hub.hf_hub_download(repository, INDEX, revision=revision, etag_timeout=PATIENCE)
    plan = planned(text, read_json(text, Path(index)))
    refuse_incomplete(text, plan, there, where)
    return Path(
        hub.snapshot_download(
            repository,
            revision=revision,
            allow_patterns=wanted(plan, there, half),
            etag_timeout=PATIENCE,
        )
    )


#: The seam: class of a pipeline -> the adapter that speaks the protocol, imported on use.
PIPELINES: Final[Mapping[str, str]] = {
    "IFPipeline": "visleak.memorization.models.families:DeepFloyd",
    "StableDiffusion3Pipeline": "visleak.memorization.models.families:StableDiffusion3",
    "StableDiffusionPipeline": "visleak.memorization.models.families:StableDiffusion",
    "StableDiffusionXLPipeline": "visleak.memorization.models.families:StableDiffusionXL",
}


def load_model(
    text: str, *, device: str = "auto", precision: str = "auto", scheduler: str = "auto"
) -> TokenModel:
    """Return the model that a text names.

    Only safetensors are read, code that comes with a model is never run, and the network is
    reached for a model of the hub alone, where it is not in the cache. Safety checkers and
    watermarks are left out, which ``about()`` says.

    Args:
        text: folder of a pipeline of diffusers, or ``hub:OWNER/NAME[@REVISION]``.
        device: ``auto`` (a CUDA GPU where there is one), ``cpu``, ``cuda:N`` or ``mps``.
        precision: ``fp32``, ``fp16``, ``bf16`` or ``auto``: fp16 on a CUDA GPU, else fp32.
        scheduler: ``own`` (the pipeline's), ``ddim`` (made of the settings of its own, as
            MemBench does) or ``auto``: DDIM for Stable Diffusion 1 and 2, own for all others.

    Raises:
        UsageError: an argument that cannot be.
        MissingExtra: diffusers or torch is not installed.
        VisleakError: the model could not be loaded, is damaged, or is of an unknown kind.
    """
    if scheduler not in SCHEDULERS:
        raise UsageError(f"scheduler is one of {', '.join(SCHEDULERS)}; got {scheduler!r}")
    of_hub = text.startswith(PREFIX)
    folder = None if of_hub else folder_of(text)
    diffusers()
    running = device_of(device)
    precise = precision_of(precision, running)
    half = precise == "fp16"
    if folder is None:
        folder = hub_folder(text, half)
    plan = whole_plan(text, folder, half)
    pipeline = load_pipeline(text, folder, plan, dtype_of(precise), half)
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
    digest = pipeline_digest(text, folder, plan, half, about)
    loaded = Loaded(text, pipeline, running, precise, digest, plan.left_out)
    return cast(TokenModel, adapter(loaded))


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


def planned(name: str, index: Mapping[str, Any]) -> Plan:
    """Return what of a pipeline is loaded."""
    return plan_of(name, index, adapter_of(name, index.get("_class_name")).layout)


def whole_plan(name: str, folder: Path, half: bool) -> Plan:
    """Return what of a folder's pipeline is loaded, all of which is there."""
    plan = planned(name, read_json(name, folder / INDEX))
    there = [each.relative_to(folder).as_posix() for each in folder.glob("*/*")]
    refuse_incomplete(name, plan, there, str(folder), folder=folder, half=half)
    return plan


def adapter_of(name: str, pipeline: object) -> type[PromptedPipeline]:
    """Return the adapter of a class of pipelines."""
    dotted = PIPELINES.get(pipeline) if isinstance(pipeline, str) else None
    if dotted is None:
        raise VisleakError(
            f"model {name}: {INDEX} says it is a {str(pipeline)[:80]!r}; known pipelines are"
            f" {', '.join(sorted(PIPELINES))}"
        )
    module, _, member = dotted.partition(":")
    return cast("type[PromptedPipeline]", getattr(import_module(module), member))
