"""Shared by the benchmarks: the data folder, bars, and the JSON file of each script."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("visleak", "numpy", "Pillow", "opencv-python-headless", "pyarrow", "faiss-cpu")


@dataclass(frozen=True, slots=True)
class Bar:
    """A result with its lower or upper limit.

    Attributes:
        name: quantity and unit.
        figure: the result.
        limit: the bar.
        most: the limit is an upper one.
    """

    name: str
    figure: float
    limit: float
    most: bool = True

    @property
    def holds(self) -> bool:
        """Whether the result is within its limit."""
        return self.figure <= self.limit if self.most else self.figure >= self.limit

    def __str__(self) -> str:
        side = "at most" if self.most else "at least"
        verdict = "holds" if self.holds else "MISSED"
        return f"{self.name:<58} {self.figure:>12,.3f}  {side:>8} {self.limit:>12,.3f}  {verdict}"


def data_folder(*needed: str) -> Path:
    """Return ``$VISLEAK_DATA``; exit with a message if required files are missing."""
    root = os.environ.get("VISLEAK_DATA")
    if not root:
        sys.exit("VISLEAK_DATA is not set: name the folder with the project's real input")
    for name in needed:
        if not (Path(root) / name).exists():
            sys.exit(f"VISLEAK_DATA has no {name}")
    return Path(root)


def visleak_command() -> list[str]:
    """Return the command that runs visleak with this interpreter."""
    return [sys.executable, "-m", "visleak"]


def write(script: str, bars: Sequence[Bar], figures: Mapping[str, Any], name: str = "") -> None:
    """Print results with their limits, and write the JSON file of the script.

    Args:
        script: the script's ``__file__``.
        bars: results with limits.
        figures: all other results.
        name: of the JSON file; by default that of the script.
    """
    for key, value in figures.items():
        if not isinstance(value, Mapping | list):
            shown = f"{value:,.3f}" if isinstance(value, float) else str(value)
            print(f"{key:<58} {shown:>12}")
    for bar in bars:
        print(bar)
    content = {
        "machine": {"cpu": _cpu(), "cores": os.cpu_count()},
        "date": date.today().isoformat(),
        "versions": {"python": platform.python_version(), **_versions()},
        "figures": figures,
        "bars": [
            {
                "name": bar.name,
                "figure": round(bar.figure, 4),
                "at_most" if bar.most else "at_least": bar.limit,
                "holds": bar.holds,
            }
            for bar in bars
        ],
    }
    target = Path(script).with_suffix(".json")
    if name:
        target = target.with_name(f"{name}.json")
    target.write_text(json.dumps(content, indent=1) + "\n")


def known_figures(script: str) -> dict[str, Any]:
    """Return the figures in the JSON file of a script, given as its ``__file__``; none without."""
    known = Path(script).with_suffix(".json")
    return json.loads(known.read_text("utf-8"))["figures"] if known.exists() else {}


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
