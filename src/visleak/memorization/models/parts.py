"""A pipeline's parts, loaded one by one from a folder by the class that was allowed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

from visleak.encoders import weights
from visleak.encoders.libraries import broken, library, member, said
from visleak.errors import VisleakError
from visleak.memorization.models.layout import Part, Plan, weights_of

_WHAT = "a diffusion model"


def diffusers() -> Any:
    """Return diffusers.

    Raises:
        MissingExtra: it, or what it stands on, is not installed.
    """
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


def load_pipeline(name: str, folder: Path, plan: Plan, dtype: Any, half: bool) -> Any:
    """Return a pipeline of diffusers on the CPU, its weights frozen.

    Args:
        name: of the model, for messages.
        folder: of the pipeline, with every file that the plan needs.
        plan: what is loaded.
        dtype: of torch, for all networks.
        half: whether weights stored in half precision come first.

    Raises:
        VisleakError: a part is damaged, or of another kind than it says.
        MissingExtra: diffusers is not installed.
    """
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


def _rest(factory: Any, plan: Plan, given: set[str]) -> dict[str, Any]:
    """Return what a pipeline wants besides the parts that are loaded."""
    rest: dict[str, Any] = {}
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


def load_part(name: str, folder: Path, part: Part, dtype: Any, half: bool) -> Any:
    """Return one part.

    Raises:
        VisleakError: its files are damaged, or lack weights.
    """
    source = str(folder / part.name)
    module = library(part.library, "diffusion", _WHAT)
    factory = member(module, part.kind, f"model {name}")
    try:
        if part.is_network:
            loaded, about = _network(factory, folder / part.name, part, dtype, half)
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
    missing = {_key(key) for kind in ("missing_keys", "mismatched_keys") for key in about[kind]}
    if missing:
        raise VisleakError(
            f"model {name}: the weights in {source} lack {len(missing)} tensors, such as"
            f" {min(missing)}; they are of another network than config.json says"
        )
    return loaded.eval().requires_grad_(False)


def _network(
    factory: Any, folder: Path, part: Part, dtype: Any, half: bool
) -> tuple[Any, dict[str, Any]]:
    """Return a network and the library's account of its weights."""
    chosen = weights_of(part, [each.name for each in folder.iterdir()], half)
    options: dict[str, Any] = {"variant": chosen.variant} if chosen and chosen.variant else {}
    if part.library == "transformers":
        options["trust_remote_code"] = False
    network, about = factory.from_pretrained(
        str(folder),
        local_files_only=True,
        use_safetensors=True,
        torch_dtype=dtype,
        output_loading_info=True,
        **options,
    )
    return network, about


def _key(key: Any) -> str:
    return str(key[0] if isinstance(key, tuple) else key)
