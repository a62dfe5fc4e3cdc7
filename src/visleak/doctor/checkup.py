"""``examine()``: the installation as a whole, and what is to be done about what is broken."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from visleak.auditing import workers_for
from visleak.cache import STEM, default_folder
from visleak.doctor.packages import TOLD, Extra, extras, installed, own_version, versions
from visleak.doctor.probes import Answer, ask

#: Variables that hold threads back.
LIMITS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is broken.

    Attributes:
        what: in a line.
        remedy: what to do, in a line.
    """

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Checkup:
    """What was found.

    Attributes:
        versions: of visleak, Python and the packages; ``None`` where one is not installed.
        system: operating system and processor.
        extras: of visleak, and what they lack.
        cache: ``folder``, ``bytes`` and whether it is ``writable``.
        threads: ``cores`` that may be used, ``limits`` from the environment, ``pools`` of
            libraries.
        devices: where networks may run: ``name``, ``what``, ``bytes`` of memory.
        troubles: what is broken.
    """

    versions: Mapping[str, str | None]
    system: str
    extras: tuple[Extra, ...]
    cache: Mapping[str, Any]
    threads: Mapping[str, Any]
    devices: tuple[Mapping[str, Any], ...]
    troubles: tuple[Trouble, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "versions": dict(self.versions),
            "system": self.system,
            "extras": {
                each.name: {"missing": list(each.missing), "install": each.install}
                for each in self.extras
            },
            "cache": dict(self.cache),
            "threads": dict(self.threads),
            "devices": [dict(each) for each in self.devices],
            "troubles": [asdict(each) for each in self.troubles],
        }


def examine() -> Checkup:
    """Look at the installation. Nothing is changed, and nothing heavy is imported here."""
    there = installed()
    known = versions(there)
    wanted = ["cv2", *(n for n in ("torch", "torchvision", "onnxruntime") if known[n])]
    answers = ask([name for name in wanted if name != "torchvision" or known["torch"]])
    cache = _cache(default_folder())
    return Checkup(
        versions={"visleak": own_version(), "python": platform.python_version(), **known},
        system=f"{platform.system()} {platform.machine()}",
        extras=extras(there),
        cache=cache,
        threads={
            "cores": workers_for(10**9, None),
            "limits": {name: os.environ[name] for name in LIMITS if name in os.environ},
            "pools": answers["cv2"].found.get("pools", []),
        },
        devices=_devices(answers),
        troubles=(*troubles(there, answers), *_cache_troubles(cache)),
    )


def troubles(there: Mapping[str, str], answers: Mapping[str, Answer]) -> tuple[Trouble, ...]:
    """Return what is broken among the packages.

    Args:
        there: version by name of what is installed.
        answers: of the probes.
    """
    found = []
    several = [name for name in TOLD["cv2"] if name in there]
    if len(several) > 1:
        named = " and ".join(f"{name} {there[name]}" for name in several)
        found.append(
            Trouble(
                f"{named} both bring cv2 and overwrite each other's files",
                f"pip uninstall -y {' '.join(several)} && pip install {several[0]}",
            )
        )
    for name, answer in answers.items():
        if answer.error is not None:
            found.append(_broken(name, answer.error, there, answers))
    return tuple(found)


def _broken(
    name: str, error: str, there: Mapping[str, str], answers: Mapping[str, Answer]
) -> Trouble:
    """Return what to do about a package that does not import."""
    what = f"{name} does not work ({error})"
    if name == "cv2":
        own = next((each for each in TOLD["cv2"] if each in there), "")
        plain = own and not own.endswith("-headless")
        remedy = (
            f"pip uninstall -y {own} && pip install opencv-python-headless"
            if plain
            else "pip install --force-reinstall opencv-python-headless"
        )
        return Trouble(what, remedy)
    if name == "torchvision" and answers["torch"].error is None:
        torch, vision = there.get("torch", "?"), there.get("torchvision", "?")
        return Trouble(
            f"torchvision {vision} does not work beside torch {torch} ({error}); it breaks"
            " transformers and timm too",
            "pip uninstall -y torchvision, or install the pair that pytorch.org names for this"
            " machine",
        )
    return Trouble(what, f"pip install --force-reinstall {name}")


def _devices(answers: Mapping[str, Answer]) -> tuple[Mapping[str, Any], ...]:
    found: list[Mapping[str, Any]] = [{"name": "cpu", "what": platform.machine(), "bytes": None}]
    torch = answers.get("torch")
    if torch is not None:
        found += torch.found.get("devices", [])
    return tuple(found)


def _cache(folder: Path | None) -> dict[str, Any]:
    """Return where the cache is, its size, and whether it can be written."""
    if folder is None:
        return {"folder": "(no home folder is known)", "bytes": 0, "writable": False}
    size = sum(file.stat().st_size for file in folder.glob(f"{STEM}.*"))
    above = next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))
    writable = above.is_dir() and os.access(above, os.W_OK | os.X_OK)
    return {"folder": str(folder), "bytes": size, "writable": writable}


def _cache_troubles(cache: Mapping[str, Any]) -> tuple[Trouble, ...]:
    if cache["writable"]:
        return ()
    return (
        Trouble(
            f"the cache folder {cache['folder']} cannot be written",
            "set VISLEAK_CACHE to another folder, or use --cache DIR or --cache off",
        ),
    )
