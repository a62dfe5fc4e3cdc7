"""A diffusion model by folder or by name of the hub."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

from visleak.errors import UsageError, VisleakError
from visleak.memorization.model import TokenModel
from visleak.memorization.models.digests import pipeline_digest
from visleak.memorization.models.files import refuse_incomplete, refuse_missing_pieces
from visleak.memorization.models.hub import PREFIX, hub_folder
from visleak.memorization.models.layout import INDEX, Plan, plan_of, read_json
from visleak.memorization.models.parts import diffusers, load_pipeline, quiet
from visleak.memorization.models.pipeline import SCHEDULERS, Loaded, plain_settings
from visleak.memorization.models.places import device_of, dtype_of, precision_of

#: The seam: class of a pipeline -> the adapter that speaks the protocol, imported on use.
PIPELINES: Final[Mapping[str, str]] = {
    "IFPipeline": "visleak.memorization.models.deepfloyd:DeepFloyd",
    "StableDiffusion3Pipeline": "visleak.memorization.models.sd3:StableDiffusion3",
    "StableDiffusionPipeline": "visleak.memorization.models.stable_diffusion:StableDiffusion",
    "StableDiffusionXLPipeline": "visleak.memorization.models.sdxl:StableDiffusionXL",
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
        VisleakError: the model cannot be had, is damaged, or is of no known kind.
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
        folder = hub_folder(text, planned, half)
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
    """Return the folder that a text names.

    Raises:
        UsageError: there is none.
        VisleakError: it is a file, or no pipeline.
    """
    path = Path(text).expanduser()
    if path.is_file():
        raise VisleakError(
            f"model {text}: one file is no pipeline, its tokenizer and settings are missing; load"
            " it with from_single_file of diffusers, save_pretrained(FOLDER), and give FOLDER"
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
    """Return what of a pipeline is loaded.

    Raises:
        VisleakError: it is of no known class, or of parts that are not allowed.
    """
    return plan_of(name, index, adapter_of(name, index.get("_class_name")).layout)


def whole_plan(name: str, folder: Path, half: bool) -> Plan:
    """Return what of a folder's pipeline is loaded, all of which is there.

    Raises:
        VisleakError: it is of no known class, or not whole.
    """
    plan = planned(name, read_json(name, folder / INDEX))
    there = [each.relative_to(folder).as_posix() for each in folder.glob("*/*")]
    refuse_incomplete(name, plan, there, str(folder))
    refuse_missing_pieces(name, folder, plan, half)
    return plan


def adapter_of(name: str, pipeline: object) -> Any:
    """Return the adapter of a class of pipelines.

    Raises:
        VisleakError: it is not in :data:`PIPELINES`.
    """
    dotted = PIPELINES.get(pipeline) if isinstance(pipeline, str) else None
    if dotted is None:
        raise VisleakError(
            f"model {name}: {INDEX} says it is a {str(pipeline)[:80]!r}; known pipelines are"
            f" {', '.join(sorted(PIPELINES))}"
        )
    module, _, member = dotted.partition(":")
    return getattr(import_module(module), member)
