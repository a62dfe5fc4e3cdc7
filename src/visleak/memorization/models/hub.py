"""Pipelines of the Hugging Face hub: from the cache, else fetched once."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from visleak.encoders.libraries import library
from visleak.encoders.weights import PATIENCE, quiet, refusal
from visleak.errors import UsageError, VisleakError
from visleak.memorization.models.files import refuse_incomplete, refuse_missing_pieces, wanted
from visleak.memorization.models.layout import INDEX, Plan, read_json

#: What a model of the hub begins with.
PREFIX: Final = "hub:"

#: From a model's name and its index to what of it is loaded.
Planner = Callable[[str, Mapping[str, Any]], Plan]


@dataclass(frozen=True, slots=True)
class HubName:
    """A model of the hub.

    Attributes:
        repository: ``OWNER/NAME``.
        revision: branch, tag or commit; ``None`` for the main branch.
    """

    repository: str
    revision: str | None = None

    @classmethod
    def parsed(cls, text: str) -> HubName:
        """Return what ``hub:OWNER/NAME[@REVISION]`` names.

        Raises:
            UsageError: it is none.

        >>> HubName.parsed("hub:someone/model@fp16")
        HubName(repository='someone/model', revision='fp16')
        """
        found = re.fullmatch(r"hub:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", text, re.ASCII)
        if found is None:
            raise UsageError(
                "model must be a folder or hub:OWNER/NAME, or hub:OWNER/NAME@REVISION; got"
                f" {text!r}"
            )
        return cls(found[1], found[2])


def hub_folder(text: str, planner: Planner, half: bool) -> Path:
    """Return the folder of a pipeline of the hub: from the cache if whole, else fetched.

    Only files that are needed are fetched.

    Args:
        text: as :meth:`HubName.parsed`.
        planner: what of a pipeline is loaded; may refuse it.
        half: whether weights stored in half precision come first.

    Raises:
        VisleakError: it cannot be had.
    """
    name = HubName.parsed(text)
    hub = library("huggingface_hub", "diffusion", f"model {text}")
    if cached := _cached(hub, name, planner, half):
        return cached
    try:
        with quiet(progress=sys.stderr.isatty()):
            return _fetched(hub, name, text, planner, half)
    except VisleakError:
        raise
    except Exception as error:
        # the hub's libraries let through whatever their own raise: a dozen kinds
        raise VisleakError(
            f"model {text} is not in the cache {hub.constants.HF_HUB_CACHE}, and"
            f" {hub.constants.ENDPOINT} {refusal(error)}; where it can be had: `hf download"
            f" {name.repository} --local-dir FOLDER`, then give FOLDER"
        ) from error


def _cached(hub: Any, name: HubName, planner: Planner, half: bool) -> Path | None:
    """Return a pipeline's folder in the cache if everything needed is there."""
    index = hub.try_to_load_from_cache(name.repository, INDEX, revision=name.revision)
    if not isinstance(index, str):
        return None
    folder = Path(index).parent
    try:
        plan = planner(name.repository, read_json(name.repository, Path(index)))
        there = [each.relative_to(folder).as_posix() for each in folder.glob("*/*")]
        refuse_incomplete(name.repository, plan, there, str(folder))
        refuse_missing_pieces(name.repository, folder, plan, half)
    except VisleakError:
        # an interrupted download; what else is wrong the hub's own copy will tell
        return None
    return folder


def _fetched(hub: Any, name: HubName, text: str, planner: Planner, half: bool) -> Path:
    """Return a pipeline's folder in the cache, after it was fetched."""
    where = f"{hub.constants.ENDPOINT}/{name.repository}"
    info = hub.HfApi().model_info(name.repository, revision=name.revision, timeout=PATIENCE)
    there = [str(each.rfilename) for each in info.siblings]
    if INDEX not in there:
        raise VisleakError(f"model {text}: {where} has no {INDEX}; it is no pipeline of diffusers")
    index = hub.hf_hub_download(
        name.repository, INDEX, revision=name.revision, etag_timeout=PATIENCE
    )
    plan = planner(text, read_json(text, Path(index)))
    refuse_incomplete(text, plan, there, where)
    return Path(
        hub.snapshot_download(
            name.repository,
            revision=name.revision,
            allow_patterns=wanted(plan, there, half),
            etag_timeout=PATIENCE,
        )
    )
