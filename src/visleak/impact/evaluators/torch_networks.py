"""Classifiers that torch runs: from a loaded module to a classifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from visleak.encoders.libraries import said
from visleak.encoders.network import NetworkEncoder, Running, Tower
from visleak.encoders.onnx_recipe import Recipe
from visleak.encoders.processors import Preprocessing, Scaling
from visleak.encoders.request import Request
from visleak.errors import VisleakError
from visleak.impact.evaluators.classifiers import Classifier, Names

#: Pixels a call of a network on the CPU, where nobody says how many pictures: 16 of 224 x 224.
#: Measured on CIFAR's networks: with few pixels a call its threads wait more than they work.
PIXELS: Final = 16 * 224 * 224

#: Pictures a call, at most, where nobody says.
MOST: Final = 128

#: From a module and its input (n, 3, height, width) to its outputs.
Call = Callable[[Any, Any], Any]


def torch_classifier(
    request: Request,
    module: Any,
    call: Call,
    digest: str,
    preprocessing: Preprocessing,
    running: Running,
    *,
    names: Names | None = None,
    shown: tuple[str, ...] = (),
    recipe: Recipe | None = None,
) -> Classifier:
    """Return a module as a classifier, tried on a grey picture.

    Args:
        request: that asked for it.
        module: the network, in ``float32`` on the CPU.
        call: how it is called.
        digest: of its weights and of what it does with them.
        preprocessing: of pictures.
        running: where and how.
        names: of its outputs.
        shown: options that are part of its name.
        recipe: where the preprocessing comes from a file, what it says of the order of channels
            and axes, and of the output.

    Raises:
        VisleakError: the module does not take such pictures, or does not make a row of outputs
            of each.
    """
    name = request.named(*shown)

    def outputs(loaded: Any, inputs: Any) -> Any:
        made = call(loaded, _arranged(inputs, recipe) if recipe else inputs)
        if recipe and recipe.output:
            made = _named(made, recipe.output, name)
        shape = tuple(getattr(made, "shape", ()))
        if len(shape) != 2 or shape[0] != len(inputs):
            raise VisleakError(
                f"model {name} makes {_described(made)} of a batch of {len(inputs)}; a classifier"
                " makes (n, classes), a number for each picture and class"
            )
        return made

    try:
        tower = Tower(module, outputs, digest)
        network = NetworkEncoder(
            name, tower, preprocessing, _paced(request, running, preprocessing)
        )
    except VisleakError:
        raise
    except Exception as error:
        # a network raises what its code raises: RuntimeError, IndexError, TypeError ...
        sides = preprocessing.pixels.shape
        size = f"{sides[0]} x {sides[1]}" if sides else "any number of"
        raise VisleakError(
            f"model {name} cannot be run on pictures of {size} pixels ({said(error, 240)}); compare"
            " how they are prepared (prep=FILE.json)"
        ) from error
    # pictures are decoded in part where the recipe says that it is enough
    prepared = recipe.as_dict() if recipe else preprocessing.recipe()
    return Classifier(network, prepared, names)


def plainly(module: Any, inputs: Any) -> Any:
    """Call a module with its input alone."""
    return module(inputs)


def running_of(request: Request) -> Running:
    """Return where and how a network runs, in ``fp32`` where nobody asks for less.

    A score is of the network as it was trained; half precision may change it.

    Raises:
        UsageError: as :meth:`visleak.encoders.network.Running.asked`.
        MissingExtra: torch is not installed.
    """
    return Running.asked(replace(request, options={"precision": "fp32", **request.options}))


def _paced(request: Request, running: Running, preprocessing: Preprocessing) -> Running:
    """Return how a network runs, with more small pictures a call where nobody says how many."""
    shape = preprocessing.pixels.shape
    if "batch" in request.options or running.device != "cpu" or shape is None:
        return running
    fitting = min(MOST, PIXELS // (shape[0] * shape[1]))
    return replace(running, batch=max(running.batch, fitting))


def of_recipe(recipe: Recipe) -> Preprocessing:
    """Return the preprocessing of a recipe, for torch."""
    mean, std = recipe.mean, recipe.std
    if recipe.channels == "BGR":
        # they are scaled before they change places
        mean, std = mean[::-1], std[::-1]
    return Preprocessing(recipe.preparation, Scaling(1 / 255, mean, std))


def _arranged(inputs: Any, recipe: Recipe) -> Any:
    """Return inputs (n, 3, height, width), RGB, in a recipe's order of channels and axes."""
    if recipe.channels == "BGR":
        inputs = inputs.flip(1)
    return inputs.permute(0, 2, 3, 1).contiguous() if recipe.layout == "NHWC" else inputs


def file_of(request: Request, what: str) -> Path:
    """Return the file that a request names.

    Raises:
        UsageError: none is named.
        VisleakError: there is none.
    """
    path = Path(request.wanted_argument("FILE")).expanduser()
    if not path.is_file():
        raise VisleakError(f"{request.called}: there is no file {path}; give {what}")
    return path


def _named(made: Any, output: str, name: str) -> Any:
    """Return one of the outputs of a network that makes several."""
    if isinstance(made, dict) and output in made:
        return made[output]
    there = f"its outputs are {', '.join(made)}" if isinstance(made, dict) else "it names none"
    raise VisleakError(f"model {name} has no output {output!r}; {there}")


def _described(made: Any) -> str:
    """Return in words what a network returned."""
    shape = getattr(made, "shape", None)
    return f"a {type(made).__name__}" if shape is None else f"an array {tuple(shape)}"
