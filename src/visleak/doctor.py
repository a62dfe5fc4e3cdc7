"""The state of an installation: versions, optional parts, devices, cache, and problems."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from pathlib import Path
from typing import Final, TypedDict

from visleak.auditing import workers_for
from visleak.quantities import counted, size
from visleak.reporting import Document, Fact
from visleak.storage.cache import STEM, default_folder

#: Environment variables that limit threads.
LIMITS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY")


@dataclass(frozen=True, slots=True)
class Issue:
    """Something that is broken."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class CacheState:
    """Where the cache is, its size in bytes, and whether it can be written."""

    folder: str
    bytes: int
    writable: bool


@dataclass(frozen=True, slots=True)
class Threads:
    """Cores that may be used, limits from the environment, and pools of libraries."""

    cores: int
    limits: Mapping[str, str]
    pools: Sequence[Mapping[str, str | int | None]]


class Device(TypedDict):
    """Where networks may run: name, description, bytes of memory if they are known."""

    name: str
    what: str
    bytes: int | None


class Found(TypedDict, total=False):
    """What a probe prints, as far as it is used."""

    pools: list[Mapping[str, str | int | None]]
    devices: list[Device]


@dataclass(frozen=True, slots=True)
class Checkup:
    """The state of an installation; versions are ``None`` where a package is not installed."""

    versions: Mapping[str, str | None]
    system: str
    extras: tuple[Extra, ...]
    cache: CacheState
    threads: Threads
    devices: tuple[Device, ...]
    issues: tuple[Issue, ...]

    def as_dict(self) -> dict[str, object]:
        """Return plain values."""
        plain = asdict(self)
        plain["troubles"] = plain.pop("issues")
        plain["extras"] = {
            each.name: {"missing": list(each.missing), "install": each.install}
            for each in self.extras
        }
        return plain


def examine() -> Checkup:
    """Check the installation. Nothing is changed, and nothing heavy is imported here."""
    there = installed()
    known = versions(there)
    wanted = ["cv2", *(n for n in ("torch", "torchvision", "onnxruntime") if known[n])]
    answers = run_probes([name for name in wanted if name != "torchvision" or known["torch"]])
    cache = _cache(default_folder())
    return Checkup(
        versions={"visleak": own_version(), "python": platform.python_version(), **known},
        system=f"{platform.system()} {platform.machine()}",
        extras=extras(there),
        cache=cache,
        threads=Threads(
            workers_for(10**9, None),
            {name: os.environ[name] for name in LIMITS if name in os.environ},
            answers["cv2"].found.get("pools", []),
        ),
        devices=(
            {"name": "cpu", "what": platform.machine(), "bytes": None},
            *(answers["torch"].found.get("devices", []) if "torch" in answers else ()),
        ),
        issues=(*issues(there, answers), *_cache_issues(cache)),
    )


def issues(there: Mapping[str, str], answers: Mapping[str, ProbeResult]) -> tuple[Issue, ...]:
    """Return what is broken among the packages."""
    found = []
    several = [name for name in PACKAGES["cv2"] if name in there]
    if len(several) > 1:
        named = " and ".join(f"{name} {there[name]}" for name in several)
        remedy = f"pip uninstall -y {' '.join(several)} && pip install {several[0]}"
        found.append(Issue(f"{named} both bring cv2 and overwrite each other's files", remedy))
    errors = {name: answer.error for name, answer in answers.items() if answer.error is not None}
    return (*found, *(_broken(name, error, there, answers) for name, error in errors.items()))


def _broken(
    name: str, error: str, there: Mapping[str, str], answers: Mapping[str, ProbeResult]
) -> Issue:
    what = f"{name} does not work ({error})"
    if name == "cv2":
        own = next((each for each in PACKAGES["cv2"] if each in there), "")
        if own and not own.endswith("-headless"):
            return Issue(what, f"pip uninstall -y {own} && pip install opencv-python-headless")
        return Issue(what, "pip install --force-reinstall opencv-python-headless")
    if name == "torchvision" and answers["torch"].error is None:
        torch, vision = there.get("torch", "?"), there.get("torchvision", "?")
        return Issue(
            f"torchvision {vision} does not work beside torch {torch} ({error}); it breaks"
            " transformers and timm too",
            "pip uninstall -y torchvision, or install the pair that pytorch.org names for this"
            " machine",
        )
    return Issue(what, f"pip install --force-reinstall {name}")


def _cache(folder: Path | None) -> CacheState:
    if folder is None:
        return CacheState("(no home folder is known)", 0, False)
    size = sum(file.stat().st_size for file in folder.glob(f"{STEM}.*"))
    above = next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))
    return CacheState(str(folder), size, above.is_dir() and os.access(above, os.W_OK | os.X_OK))


def _cache_issues(cache: CacheState) -> tuple[Issue, ...]:
    remedy = "set VISLEAK_CACHE to another folder, or use --cache DIR or --cache off"
    lost = Issue(f"the cache folder {cache.folder} cannot be written", remedy)
    return () if cache.writable else (lost,)


#: Common name of a package -> distributions of it; the first installed one is reported.
PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
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

#: Distributions that can replace each other.
_ALTERNATIVES: Final = tuple(names for names in PACKAGES.values() if len(names) > 1)

#: Extras for the development of visleak.
_OWN: Final = ("dev",)

_REQUIREMENT: Final = re.compile(
    r"(?P<name>[\w.-]+)\s*(?:\[(?P<extras>[^\]]*)\])?\s*(?P<bounds>[^;]*)"
    r"(?:;.*extra\s*==\s*[\"'](?P<extra>[^\"']+)[\"'])?"
)


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of visleak."""

    name: str  # as in ``pip install 'visleak[NAME]'``
    missing: tuple[str, ...]

    @property
    def install(self) -> str:
        """The line that installs it."""
        return f"pip install 'visleak[{self.name}]'"


def installed() -> Mapping[str, str]:
    """Return version by name of all installed distributions; names as pip compares them."""
    found: dict[str, str] = {}
    for each in distributions():
        if name := each.metadata["Name"]:
            found.setdefault(canonical(name), each.version)
    return found


def canonical(name: str) -> str:
    """Return a distribution's name as pip compares it.

    >>> canonical("Open_Clip.torch")
    'open-clip-torch'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def versions(there: Mapping[str, str]) -> dict[str, str | None]:
    """Return the version of each of :data:`PACKAGES`, ``None`` if it is not installed."""
    return {
        name: next((there[each] for each in several if each in there), None)
        for name, several in PACKAGES.items()
    }


def extras(there: Mapping[str, str], stated: Iterable[str] | None = None) -> tuple[Extra, ...]:
    """Return the extras of visleak and what they lack."""
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
    """Yield what an extra lacks, including the extras that it consists of."""
    for found in needed.get(extra, ()):
        name = canonical(found["name"])
        if name == "visleak":
            for inner in (found["extras"] or "").split(","):
                if inner.strip() != extra:
                    yield from _missing(inner.strip(), needed, there)
            continue
        group = next((names for names in _ALTERNATIVES if name in names), (name,))
        have = next((there[each] for each in group if each in there), None)
        least = re.search(r">=\s*([\w.]+)", found["bounds"])
        if have is None:
            yield found["name"]
        elif least and _numbers(have) < _numbers(least[1]):
            yield f"{found['name']} {have} (it takes {least[1]})"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[a-zA-Z+]", text)[0]))


def commit() -> str | None:
    """Return the commit that this visleak was built from, or of the checkout that it runs from."""
    package = Path(__file__).parent
    built = package / "commit.txt"
    if built.is_file():
        return built.read_text("ascii").strip()
    if package.parent.name != "src" or not (package.parents[1] / ".git").exists():
        return None
    command = ("git", "rev-parse", "--short=12", "HEAD")
    try:
        answer = subprocess.run(
            command, cwd=package, capture_output=True, text=True, check=False, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def own_version() -> str:
    """Return the version of visleak."""
    try:
        return version("visleak")
    except PackageNotFoundError:
        import visleak

        return visleak.__version__


#: Time limit of a probe in seconds; a cold torch on a slow disk takes most of a minute.
PATIENCE: Final = 120.0

#: Name -> code of a child process, which prints JSON at the end.
PROBES: Final[Mapping[str, str]] = {
    "cv2": """
import json, cv2, numpy, scipy.linalg
from threadpoolctl import threadpool_info
print(json.dumps({"cv2": cv2.__version__, "pools": [
    {"api": p["user_api"], "library": p.get("internal_api"), "version": p.get("version"),
     "threads": p["num_threads"]} for p in threadpool_info()]}))
""",
    "torch": """
import json, torch
devices = [{"name": f"cuda:{n}", "what": torch.cuda.get_device_name(n),
            "bytes": torch.cuda.get_device_properties(n).total_memory}
           for n in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)]
if torch.backends.mps.is_available():
    devices.append({"name": "mps", "what": "Apple GPU", "bytes": None})
print(json.dumps({"devices": devices, "threads": torch.get_num_threads(),
                  "cuda": torch.version.cuda}))
""",
    "torchvision": """
import json, torch, torchvision
torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
print(json.dumps({}))
""",
    "onnxruntime": """
import json, onnxruntime
print(json.dumps({"providers": onnxruntime.get_available_providers()}))
""",
}


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe."""

    found: Found  # what it printed; empty if it failed
    error: str | None  # the last line of its error, ``None`` if there was none


def run_probes(names: list[str], probes: Mapping[str, str] = PROBES) -> dict[str, ProbeResult]:
    """Run probes in parallel; return their results."""
    children = {
        name: subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-c", probes[name]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
        )
        for name in names
    }
    return {name: _answer(child) for name, child in children.items()}


def _answer(child: subprocess.Popen[str]) -> ProbeResult:
    try:
        output, complaint = child.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return ProbeResult({}, f"no answer within {PATIENCE:g} s")
    if child.returncode < 0:
        return ProbeResult({}, f"the process was killed by signal {-child.returncode}")
    if child.returncode:
        lines = complaint.strip().splitlines() or [f"exit code {child.returncode}"]
        return ProbeResult({}, lines[-1].strip()[:300])
    try:
        return ProbeResult(json.loads(output.strip().splitlines()[-1]), None)
    except (ValueError, IndexError):
        return ProbeResult({}, "its output cannot be read")


def document(found: Checkup, *, detailed: bool = True) -> Document:
    """Return what :func:`visleak.doctor.examine` found; detailed: with what each extra lacks."""
    count = len(found.issues)
    headline = f"{counted(count, 'problem')} found" if count else "no problems found"
    return Document("Installation", headline, facts=tuple(_facts(found, detailed)))


def _facts(found: Checkup, detailed: bool) -> Iterator[Fact]:
    versions = {name: version for name, version in found.versions.items() if version}
    own = f"visleak {versions.pop('visleak')}, Python {versions.pop('python')}, {found.system}"
    yield Fact("version", own)
    yield Fact("packages", ", ".join(f"{name} {version}" for name, version in versions.items()))
    complete = [each.name for each in found.extras if not each.missing]
    installed = f"{len(complete)} of {len(found.extras)} installed"
    yield Fact("extras", ": ".join((installed, *([", ".join(complete)] if complete else ()))))
    lacking = [each for each in found.extras if each.missing]
    if detailed:
        for each in lacking:
            yield Fact("", f"{each.name} lacks {', '.join(each.missing)}: {each.install}")
    elif lacking:
        yield Fact("", "visleak doctor -v lists what the others need")
    yield Fact("cache", f"{found.cache.folder}, {size(found.cache.bytes)}")
    yield Fact("threads", ", ".join(_threads(found)))
    for number, device in enumerate(found.devices):
        memory = f", {size(device['bytes'])}" if device["bytes"] else ""
        yield Fact("" if number else "devices", f"{device['name']} ({device['what']}{memory})")
    for issue in found.issues:
        yield Fact("problem", issue.what, "caution")
        yield Fact("", f"fix: {issue.remedy}")


def _threads(found: Checkup) -> Iterator[str]:
    yield counted(found.threads.cores, "core")
    for name, value in found.threads.limits.items():
        yield f"{name}={value}"
    pools = [pool for pool in found.threads.pools if pool["api"] == "blas"]
    for pool in {pool["library"]: pool for pool in pools}.values():
        yield f"BLAS {pool['library']} {pool['version'] or ''} with {pool['threads']} threads"
