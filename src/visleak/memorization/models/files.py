"""Which files of a pipeline's part are read: safetensors only, in one piece or several."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from visleak.errors import VisleakError
from visleak.memorization.models.layout import INDEX, Part, Plan, read_json

#: What the two libraries call a network's weights.
STEMS: Final = {"diffusers": "diffusion_pytorch_model", "transformers": "model"}

_PICKLES: Final = (".bin", ".pt", ".ckpt", ".pth")


@dataclass(frozen=True, slots=True)
class Weights:
    """Files of a network.

    Attributes:
        variant: ``fp16``, or ``""`` for the plain ones.
        files: names within the part's folder; an index first, then the pieces it names.
    """

    variant: str
    files: tuple[str, ...]


def weights_of(part: Part, there: Iterable[str], half: bool = False) -> Weights | None:
    """Return which files of a part's folder are its weights; ``None`` where none are.

    Args:
        part: a network.
        there: names of the folder's files.
        half: whether weights stored in half precision come first.

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
    """Return the files of a part's folder that its images depend on, in order of name.

    Args:
        part: of a pipeline.
        there: names of the folder's files.
        half: as :func:`weights_of`.
    """
    names = sorted(there)
    if part.is_scheduler:
        return tuple(name for name in names if name == "scheduler_config.json")
    if part.is_tokenizer:
        return tuple(name for name in names if name.endswith((".json", ".txt", ".model")))
    weights = weights_of(part, names, half)
    config = tuple(name for name in names if name == "config.json")
    return (*config, *(weights.files if weights else ()))


def wanted(plan: Plan, there: Iterable[str], half: bool = False) -> list[str]:
    """Return the files of a whole pipeline that are needed, as paths from its folder.

    Args:
        plan: what is loaded.
        there: all files, as ``PART/NAME``.
        half: as :func:`weights_of`.
    """
    names = list(there)
    found = [INDEX]
    for part in plan.parts:
        inside = [
            name.removeprefix(f"{part.name}/") for name in names if name.startswith(f"{part.name}/")
        ]
        found += [f"{part.name}/{name}" for name in files_of(part, inside, half)]
    return found


def refuse_incomplete(name: str, plan: Plan, there: Iterable[str], where: str) -> None:
    """Refuse a pipeline some of whose files are missing.

    Args:
        name: of the model, for messages.
        plan: what is loaded.
        there: all files, as ``PART/NAME``.
        where: they are, for messages.

    Raises:
        VisleakError: a part has no files, no configuration or no safetensors.
    """
    names = list(there)
    for part in plan.parts:
        start = f"{part.name}/"
        inside = {each.removeprefix(start) for each in names if each.startswith(start)}
        if not inside:
            missing = f"is not there; a pipeline has its {part.name} in that folder"
        elif part.is_network:
            missing = _missing_of_network(part, inside)
        else:
            file = "scheduler_config.json" if part.is_scheduler else "vocabulary (.json, .txt ...)"
            missing = "" if files_of(part, inside) else f"has no {file}"
        if missing:
            raise VisleakError(f"model {name}: {where}/{part.name} {missing}")


def _missing_of_network(part: Part, inside: set[str]) -> str:
    """Return in words what a network's folder lacks; nothing if it is whole."""
    if "config.json" not in inside:
        return "has no config.json"
    if weights_of(part, inside) is not None:
        return ""
    if any(each.endswith(_PICKLES) for each in inside):
        return (
            "has its weights only as pickles (.bin), which can run code; save the pipeline again"
            " with save_pretrained(FOLDER, safe_serialization=True)"
        )
    return f"has no weights, neither {STEMS[part.library]}.safetensors nor pieces of it"


def refuse_missing_pieces(name: str, folder: Path, plan: Plan, half: bool) -> None:
    """Refuse weights in several files where one that the index names is not there.

    Args:
        name: of the model, for messages.
        folder: of the pipeline.
        plan: what is loaded.
        half: as :func:`weights_of`.

    Raises:
        VisleakError: a piece is missing, or the index is damaged.
    """
    for part in plan.parts:
        inside = folder / part.name
        if not part.is_network:
            continue
        weights = weights_of(part, [each.name for each in inside.iterdir()], half)
        if weights is None or not weights.files[0].endswith(".json"):
            continue
        index = inside / weights.files[0]
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
