"""Which packages are installed, read from their metadata: nothing is imported for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from typing import Final

#: What is told of: the name people know -> distributions that bring it, the first one there.
TOLD: Final[Mapping[str, tuple[str, ...]]] = {
    "numpy": ("numpy",),
    "scipy": ("scipy",),
    "Pillow": ("pillow",),
    "cv2": (
        *("opencv-python-headless", "opencv-python"),
        *("opencv-contrib-python-headless", "opencv-contrib-python"),
    ),
    "pyarrow": ("pyarrow",),
    "torch": ("torch",),
    "torchvision": ("torchvision",),
    "transformers": ("transformers",),
    "timm": ("timm",),
    "open_clip": ("open-clip-torch",),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "faiss": ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu12"),
    "ray": ("ray",),
    "datasets": ("datasets",),
    "fsspec": ("fsspec",),
    "pdqhash": ("pdqhash",),
}

#: Distributions that may stand for another one of them.
_ALIKE: Final = tuple(names for names in TOLD.values() if len(names) > 1)

#: Extras for those who work on visleak itself.
_OWN: Final = ("dev",)

_REQUIREMENT: Final = re.compile(
    r"(?P<name>[\w.-]+)\s*(?:\[(?P<extras>[^\]]*)\])?\s*(?P<bounds>[^;]*)"
    r"(?:;.*extra\s*==\s*[\"'](?P<extra>[^\"']+)[\"'])?"
)


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of visleak.

    Attributes:
        name: as in ``pip install 'visleak[NAME]'``.
        missing: what it needs and is not there, or too old.
    """

    name: str
    missing: tuple[str, ...]

    @property
    def install(self) -> str:
        """The line that installs it."""
        return f"pip install 'visleak[{self.name}]'"


def installed() -> Mapping[str, str]:
    """Return version by name of all installed distributions; names as pip compares them."""
    found: dict[str, str] = {}
    for each in distributions():
        name = each.metadata["Name"]
        if name:
            found.setdefault(canonical(name), each.version)
    return found


def canonical(name: str) -> str:
    """Return a distribution's name as pip compares it.

    >>> canonical("Open_Clip.torch")
    'open-clip-torch'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def versions(there: Mapping[str, str]) -> dict[str, str | None]:
    """Return the version of each package of :data:`TOLD`, ``None`` where it is not installed."""
    return {
        name: next((there[each] for each in several if each in there), None)
        for name, several in TOLD.items()
    }


def extras(there: Mapping[str, str], stated: Iterable[str] | None = None) -> tuple[Extra, ...]:
    """Return the extras of visleak and what they lack.

    Args:
        there: version by name, from :func:`installed`.
        stated: requirements of visleak as its metadata states them; by default its own.
    """
    if stated is None:
        try:
            stated = requires("visleak") or ()
        except PackageNotFoundError:  # run from its sources, never installed
            stated = ()
    needed: dict[str, list[re.Match[str]]] = {}
    for text in stated:
        found = _REQUIREMENT.match(text)
        if found and found["extra"] and found["extra"] not in _OWN:
            needed.setdefault(found["extra"], []).append(found)
    return tuple(
        Extra(name, tuple(dict.fromkeys(_missing(name, needed, there)))) for name in sorted(needed)
    )


def _missing(
    extra: str, needed: Mapping[str, list[re.Match[str]]], there: Mapping[str, str]
) -> Iterable[str]:
    """Yield what an extra lacks, that of the extras it is made of included."""
    for found in needed.get(extra, ()):
        name = canonical(found["name"])
        if name == "visleak":
            for inner in (found["extras"] or "").split(","):
                if inner.strip() != extra:
                    yield from _missing(inner.strip(), needed, there)
            continue
        group = next((names for names in _ALIKE if name in names), (name,))
        have = next((there[each] for each in group if each in there), None)
        least = re.search(r">=\s*([\w.]+)", found["bounds"])
        if have is None:
            yield found["name"]
        elif least and _numbers(have) < _numbers(least[1]):
            yield f"{found['name']} {have} (it takes {least[1]})"


def _numbers(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[a-zA-Z+]", text)[0]))


def own_version() -> str:
    """Return the version of visleak."""
    try:
        return version("visleak")
    except PackageNotFoundError:
        import visleak

        return visleak.__version__
