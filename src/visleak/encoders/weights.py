"""Models in folders and on the Hugging Face hub: found, downloaded, loaded by transformers."""

from __future__ import annotations

import json
import logging
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from visleak.encoders.request import Request
from visleak.errors import VisleakError, brief
from visleak.lazy import broken, library

if TYPE_CHECKING:
    import torch

#: Keys under which checkpoints store the weights.
WRAPPED: Final = ("state_dict", "model_state_dict", "model", "net")
#: Prefixes that wrappers of torch add to every name.
PREFIXES: Final = ("module.", "_orig_mod.", "model.")


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of a model, as a library writes them."""

    library: str
    config: str  # describes how to build the model; empty if the library needs none
    # in order of preference; an index names the parts of weights in several files
    weights: tuple[str, ...]
    others: tuple[str, ...] = ()  # optional files

    def missing(self, folder: Path) -> str:
        """Return what a folder lacks, in words; empty if it holds a model."""
        if self.config and not (folder / self.config).is_file():
            return self.config
        if not any((folder / file).is_file() for file in self.weights):
            return f"weights, none of {', '.join(self.weights)}"
        return ""

    def weight_files(self, folder: Path) -> list[Path]:
        """Return the files with the weights of a model in a folder."""
        file = next(folder / each for each in self.weights if (folder / each).is_file())
        if not file.name.endswith(".index.json"):
            return [file]
        parts = json.loads(file.read_text(encoding="utf-8"))["weight_map"].values()
        return [folder / part for part in sorted(set(parts))]


_WEIGHTS: Final = ("model.safetensors", "pytorch_model.bin")
TRANSFORMERS: Final = Layout(
    "transformers",
    "config.json",
    tuple(f"{file}{index}" for file in _WEIGHTS for index in ("", ".index.json")),
    ("preprocessor_config.json", "processor_config.json"),
)
PATIENCE: Final = 8.0  # seconds that the hub has for an answer


@dataclass(frozen=True, slots=True)
class Found:
    """The folder of a model."""

    name: str  # as the caller named it
    path: Path  # its location

    def config(self) -> dict[str, object]:
        """Return ``config.json``."""
        file = self.path / TRANSFORMERS.config
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise VisleakError(f"model {self.name}: {file} cannot be read ({error})") from error
        if not isinstance(content, dict):
            raise VisleakError(f"model {self.name}: {file} must hold names and values")
        return content


def transformers_for(what: str) -> ModuleType:
    """Return transformers."""
    # transformers can be imported without torch, and has no models then
    library("torch", "torch", what)
    return library("transformers", "torch", what)


def find_model(request: Request, default: str = "", layout: Layout = TRANSFORMERS) -> Found:
    """Return the folder of the model that a request names: a folder, or a model of the hub."""
    name = request.argument or default
    path = Path(name).expanduser()
    if path.is_dir():
        return Found(name, whole(name, path, layout))
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise VisleakError(
            f"{request.called}: there is no folder {name}; give a folder with config.json and"
            " model.safetensors, or the name of a model on the Hugging Face hub"
        )
    return Found(name, hub_model(request.called, name, layout, f"{request.name}:FOLDER"))


def whole(name: str, path: Path, layout: Layout) -> Path:
    """Return a folder that holds a model."""
    if missing := layout.missing(path):
        raise VisleakError(
            f"model {name}: the folder {path} has no {missing}; give one with a model of"
            f" {layout.library}, as `hf download` writes it"
        )
    return path


def hub_model(what: str, name: str, layout: Layout, use: str) -> Path:
    """Return the local folder of a model of the hub: from the cache, or downloaded."""
    transformers_for(what)
    import huggingface_hub as hub

    try:
        folder = _cached(hub, name, layout)
        if folder and (
            not layout.others or any((folder / each).is_file() for each in layout.others)
        ):
            return folder
        try:
            with quiet(progress=sys.stderr.isatty()):
                return _downloaded(hub, name, layout)
        except Exception:
            # a network without its description is still better than none
            if folder:
                return folder
            raise
    except VisleakError:
        raise
    except Exception as error:
        # the hub's library lets through the errors of its own libraries: a dozen kinds
        raise VisleakError(
            f"{what}: model {name!r} is not a folder and not in the cache"
            f" {hub.constants.HF_HUB_CACHE}, and {hub.constants.ENDPOINT} {refusal(error)}; from a"
            f" machine that can load it: `hf download {name} --local-dir FOLDER`, then {use}"
        ) from error


def _cached(hub: ModuleType, name: str, layout: Layout) -> Path | None:
    """Return a model's folder in the cache if all of its weights are there."""
    cached = (hub.try_to_load_from_cache(name, file) for file in layout.weights)
    folder = next((Path(path).parent for path in cached if isinstance(path, str)), None)
    if folder is None or layout.missing(folder):
        return None
    return folder if all(file.is_file() for file in layout.weight_files(folder)) else None


def _downloaded(hub: ModuleType, name: str, layout: Layout) -> Path:
    listed = [each.rfilename for each in hub.HfApi().model_info(name, timeout=PATIENCE).siblings]
    weights = next((file for file in layout.weights if file in listed), None)
    if weights is None or (layout.config and layout.config not in listed):
        raise VisleakError(
            f"model {name} on {hub.constants.ENDPOINT} was not made for {layout.library}: it has no"
            f" {layout.config or 'weights'}, or none of {', '.join(layout.weights)}"
        )
    wanted = [weights, layout.config, *layout.others]
    if weights.endswith(".index.json"):
        stem, ending = weights.removesuffix(".index.json").rsplit(".", 1)
        wanted.append(f"{stem}-*.{ending}")
    patterns = [each for each in wanted if each]
    return Path(hub.snapshot_download(name, allow_patterns=patterns, etag_timeout=PATIENCE))


def refusal(error: Exception) -> str:
    """Return in a few words why the hub did not give a model."""
    kind = type(error).__name__
    status = getattr(getattr(error, "response", None), "status_code", None)
    if kind == "GatedRepoError" or status == 403:
        return "requires a granted request for access (`hf auth login`)"
    if status in (401, 404):
        return "has no such model, or a private one (`hf auth login`)"
    if kind == "HFValidationError":
        return "has no models of such a name (OWNER/NAME)"
    if status is not None:
        return f"answered with status {status}"
    return f"cannot be reached ({brief(error)})"


def load_weights(
    found: Found, factory: Any, **options: object
) -> tuple[torch.nn.Module, frozenset[str]]:
    """Return a model of transformers, and the names of weights it lacks; no code is run."""
    with loading(f"model {found.name} cannot be loaded from {found.path}"):
        try:
            model, report = factory.from_pretrained(
                str(found.path),
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                **options,
            )
        except ImportError as error:
            raise broken("transformers", f"model {found.name}", error) from error
    mismatched = {
        str(key[0] if isinstance(key, tuple) else key) for key in report["mismatched_keys"]
    }
    return model.float(), frozenset(report["missing_keys"]) | mismatched


def refuse_missing(found: Found, missing: frozenset[str]) -> None:
    """Refuse a model some of whose weights would be random numbers."""
    if missing:
        raise VisleakError(
            f"model {found.name}: the weights in {found.path} lack {len(missing)} tensors, such as"
            f" {min(missing)}; they are of another model than config.json says"
        )


@contextmanager
def loading(failure: str) -> Iterator[None]:
    """Call a library quietly, and turn any error of it into one line."""
    try:
        with quiet():
            yield
    except VisleakError:
        raise
    except Exception as error:
        raise VisleakError(f"{failure} ({brief(error)})") from error


@contextmanager
def quiet(progress: bool = False) -> Iterator[None]:
    """Keep the libraries from writing to the terminal: what matters is checked or raised."""
    import huggingface_hub.utils as hub
    import transformers.utils.logging as logs

    loggers = [logging.getLogger(name) for name in ("", "transformers", "huggingface_hub")]
    levels, bars = [logger.level for logger in loggers], logs.is_progress_bar_enabled()
    hidden = hub.are_progress_bars_disabled()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    # hides the hub's bars, too
    logs.disable_progress_bar()
    if progress and not hidden:
        hub.enable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if bars:
            logs.enable_progress_bar()
        (hub.disable_progress_bars if hidden else hub.enable_progress_bars)()


class StoredTensors(Mapping[str, "torch.Tensor"]):
    """The weights of a model as its files name them, read one at a time, for its digest.

    Not those of the loaded module: another version of transformers gives its parts other names.
    """

    def __init__(self, folder: Path) -> None:
        self._readers: dict[str, Callable[[], torch.Tensor]] = {}
        for file in TRANSFORMERS.weight_files(folder):
            if file.suffix == ".safetensors":
                from safetensors import safe_open

                handle: Any = safe_open(file, framework="pt")
                names, read = list(handle.keys()), handle.get_tensor
            else:
                import torch

                stored = torch.load(file, map_location="cpu", weights_only=True)
                names = [name for name in stored if isinstance(stored[name], torch.Tensor)]
                read = stored.__getitem__
            self._readers |= {name: partial(read, name) for name in names}

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def read_tensors(path: Path, what: str, otherwise: str = "") -> dict[str, torch.Tensor]:
    """Return the tensors of a file, without prefixes of training code; no code is run."""
    torch = library("torch", "torch", what)
    try:
        if path.suffix.lower() == ".safetensors":
            content = library("safetensors.torch", "torch", what).load_file(str(path))
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except VisleakError:
        raise
    except Exception as error:
        # RuntimeError, EOFError, SafetensorError, OSError ...; torch explains at length how to load
        # other objects all the same, which would run them
        other = isinstance(error, pickle.UnpicklingError)
        why = "it is damaged, or holds more than tensors" if other else brief(error)
        raise VisleakError(
            f"{what}: {path} is not a file of weights alone ({why}); save the state_dict{otherwise}"
        ) from error
    content = content if isinstance(content, Mapping) else {}
    inner = (content[key] for key in WRAPPED if isinstance(content.get(key), Mapping))
    content = next(inner, content)
    tensors = {str(n): each for n, each in content.items() if isinstance(each, torch.Tensor)}
    if not tensors:
        raise VisleakError(
            f"{what}: {path} holds no tensors by name; save the state_dict of the network"
        )
    while prefix := next((p for p in PREFIXES if all(n.startswith(p) for n in tensors)), ""):
        tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
    return tensors
