"""Models in folders and on the Hugging Face hub: found, fetched, loaded by transformers."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from visleak.encoders.libraries import broken, library, said
from visleak.encoders.request import Request
from visleak.errors import VisleakError


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of a model, as a library writes them.

    Attributes:
        library: whose they are.
        config: tells how to build the model; empty where the library knows without.
        weights: in order of preference; an index names the parts of what is in several files.
        others: taken along where they are there.
    """

    library: str
    config: str
    weights: tuple[str, ...]
    others: tuple[str, ...] = ()


TRANSFORMERS: Final = Layout(
    "transformers",
    "config.json",
    (
        "model.safetensors",
        "model.safetensors.index.json",
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
    ),
    ("preprocessor_config.json", "processor_config.json"),
)

#: Seconds that the hub has for an answer.
PATIENCE: Final = 8.0


@dataclass(frozen=True, slots=True)
class Found:
    """A model's folder.

    Attributes:
        name: as the caller named it.
        path: where its files lie.
    """

    name: str
    path: Path

    def config(self) -> dict[str, Any]:
        """Return ``config.json``.

        Raises:
            VisleakError: it is missing or damaged.
        """
        file = self.path / TRANSFORMERS.config
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise VisleakError(f"model {self.name}: {file} cannot be read ({error})") from error
        if not isinstance(content, dict):
            raise VisleakError(f"model {self.name}: {file} must hold names and values")
        return content


def transformers_for(what: str) -> Any:
    """Return transformers.

    Raises:
        MissingExtra: it, or torch, is not installed.
    """
    # transformers can be imported without torch, and has no models then
    library("torch", "torch", what)
    return library("transformers", "torch", what)


def find_model(request: Request, default: str = "", layout: Layout = TRANSFORMERS) -> Found:
    """Return the folder of the model that a request names: its own, or the hub's copy.

    A folder is taken as it is. Another name is looked for in the Hugging Face cache first, and
    only then asked for on the hub.

    Args:
        request: whose argument is the folder or the name.
        default: the name where there is no argument.
        layout: which of its files are wanted.

    Raises:
        VisleakError: it cannot be had; the message says what was looked for, where, and how to
            get it.
    """
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
    """Return a folder that holds a model.

    Raises:
        VisleakError: a file is missing.
    """
    if layout.config and not (path / layout.config).is_file():
        missing = layout.config
    elif not any((path / file).is_file() for file in layout.weights):
        missing = f"weights, none of {', '.join(layout.weights)}"
    else:
        return path
    raise VisleakError(
        f"model {name}: the folder {path} has no {missing}; give one with a model of"
        f" {layout.library}, as `hf download` writes it"
    )


def hub_model(what: str, name: str, layout: Layout, use: str) -> Path:
    """Return the folder of a model of the hub: from the cache, else fetched.

    Args:
        what: who wants it, for messages, such as ``encoder timm``.
        name: ``OWNER/NAME``.
        layout: which files are wanted.
        use: how that is written with a folder, for messages.

    Raises:
        VisleakError: it cannot be had.
    """
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
                return _fetched(hub, name, layout)
        except Exception:
            # a network without its description is still better than none
            if folder:
                return folder
            raise
    except VisleakError:
        raise
    except Exception as error:
        # the hub's libraries let through whatever their own raise: a dozen kinds
        raise VisleakError(
            f"{what}: model {name!r} is no folder and not in the cache"
            f" {hub.constants.HF_HUB_CACHE}, and {hub.constants.ENDPOINT} {refusal(error)}; where"
            f" it can be had: `hf download {name} --local-dir FOLDER`, then {use}"
        ) from error


def _cached(hub: Any, name: str, layout: Layout) -> Path | None:
    """Return a model's folder in the cache if all of its weights are there."""

    def cached(file: str) -> Path | None:
        path = hub.try_to_load_from_cache(name, file)
        return Path(path) if isinstance(path, str) else None

    weights = next(filter(None, map(cached, layout.weights)), None)
    if weights is None or (layout.config and cached(layout.config) is None):
        return None
    if weights.name.endswith(".index.json"):
        parts = set(json.loads(weights.read_text(encoding="utf-8"))["weight_map"].values())
        if not all((weights.parent / part).is_file() for part in parts):
            return None
    return weights.parent


def _fetched(hub: Any, name: str, layout: Layout) -> Path:
    """Return a model's folder in the cache, after it was fetched."""
    there = [each.rfilename for each in hub.HfApi().model_info(name, timeout=PATIENCE).siblings]
    weights = next((file for file in layout.weights if file in there), None)
    if weights is None or (layout.config and layout.config not in there):
        raise VisleakError(
            f"model {name} on {hub.constants.ENDPOINT} was not made for {layout.library}: it has no"
            f" {layout.config or 'weights'}, or none of {', '.join(layout.weights)}"
        )
    wanted = [weights, *(file for file in (layout.config, *layout.others) if file in there)]
    if weights.endswith(".index.json"):
        stem, ending = weights.removesuffix(".index.json").rsplit(".", 1)
        wanted += [file for file in there if file.startswith(f"{stem}-") and file.endswith(ending)]
    return Path(hub.snapshot_download(name, allow_patterns=wanted, etag_timeout=PATIENCE))


def refusal(error: Exception) -> str:
    """Return in a few words why the hub did not give a model."""
    kind = type(error).__name__
    status = getattr(getattr(error, "response", None), "status_code", None)
    if kind == "GatedRepoError" or status == 403:
        return "gives it to those only who asked for access (`hf auth login`)"
    if status in (401, 404):
        return "has no such model, or a private one (`hf auth login`)"
    if kind == "HFValidationError":
        return "has no models of such a name (OWNER/NAME)"
    if status is not None:
        return f"answered with status {status}"
    return f"cannot be reached ({said(error)})"


def load_weights(found: Found, factory: Any, **options: Any) -> tuple[Any, frozenset[str]]:
    """Return a model of transformers and the names of weights that its files lack.

    Weights come from safetensors, or from files read with ``weights_only``; code that comes with
    a model is never run.

    Args:
        found: its folder.
        factory: the class with ``from_pretrained``.
        options: for ``from_pretrained``.

    Raises:
        VisleakError: the files are damaged, or of another kind of model.
    """
    try:
        with quiet():
            model, about = factory.from_pretrained(
                str(found.path),
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                **options,
            )
    except ImportError as error:
        raise broken("transformers", f"model {found.name}", error) from error
    except Exception as error:
        # the library raises OSError, ValueError, KeyError, RuntimeError, SafetensorError ...
        raise VisleakError(
            f"model {found.name} cannot be loaded from {found.path} ({said(error)})"
        ) from error
    missing = frozenset(about["missing_keys"]) | {_key(key) for key in about["mismatched_keys"]}
    return model.float(), missing


def _key(mismatch: Any) -> str:
    return str(mismatch[0] if isinstance(mismatch, tuple) else mismatch)


def refuse_missing(found: Found, missing: frozenset[str]) -> None:
    """Refuse a model some of whose weights would be random numbers."""
    if missing:
        raise VisleakError(
            f"model {found.name}: the weights in {found.path} lack {len(missing)} tensors, such as"
            f" {min(missing)}; they are of another model than config.json says"
        )


@contextmanager
def quiet(progress: bool = False) -> Iterator[None]:
    """Keep the libraries from writing to the terminal; put their settings back after.

    What matters of it is checked or raised.

    Args:
        progress: let bars of downloads through.
    """
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


class StoredTensors(Mapping[str, Any]):
    """Tensors by name, read from the files one at a time.

    Args:
        folder: of a model that transformers could load.
    """

    def __init__(self, folder: Path) -> None:
        name = next(each for each in TRANSFORMERS.weights if (folder / each).is_file())
        files = [name]
        if name.endswith(".index.json"):
            index = json.loads((folder / name).read_text(encoding="utf-8"))
            files = sorted(set(index["weight_map"].values()))
        self._readers: dict[str, Callable[[], Any]] = {}
        for file in files:
            self._readers |= _readers(folder / file)

    def __getitem__(self, name: str) -> Any:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def _readers(file: Path) -> dict[str, Callable[[], Any]]:
    """Return, by the name of a tensor in a file, what reads it."""
    if file.suffix == ".safetensors":
        from safetensors import safe_open

        handle: Any = safe_open(file, framework="pt")
        return {name: partial(handle.get_tensor, name) for name in handle.keys()}  # noqa: SIM118
    import torch

    stored = torch.load(file, map_location="cpu", weights_only=True)
    return {
        name: partial(stored.__getitem__, name)
        for name, value in stored.items()
        if isinstance(value, torch.Tensor)
    }
