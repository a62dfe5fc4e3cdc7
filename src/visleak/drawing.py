"""Figures by matplotlib in one style, as SVG and PNG; the same numbers give the same bytes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

STYLE: Final[dict[str, Any]] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.edgecolor": "#8a919a",
    "axes.labelcolor": "#1d2127",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": "#4a5058",
    "ytick.color": "#4a5058",
    "grid.color": "#dfe3e8",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "visleak",
    "path.simplify": False,
}


@contextmanager
def figure_of(size: tuple[float, float]) -> Iterator[Any]:
    """Give an empty figure in this style, without a display.

    Args:
        size: width and height in inches.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context():
        mpl.rcdefaults()
        parameters: Any = mpl.rcParams
        parameters.update(STYLE)
        figure = Figure(figsize=size)
        FigureCanvasAgg(figure)
        yield figure


def saved(figure: Any, name: str, kinds: Sequence[str] = ("svg", "png")) -> dict[str, bytes]:
    """Return a figure's files by ending, without date or version.

    Args:
        figure: from :func:`figure_of`, whose context is still open.
        name: no two figures of one page have the same.
        kinds: the endings.
    """
    import matplotlib as mpl

    result = {}
    mpl.rcParams["svg.hashsalt"] = f"visleak {name}"
    plans: Sequence[tuple[str, dict[str, Any]]] = (
        ("svg", {"metadata": {"Date": None, "Creator": None}}),
        ("png", {"metadata": {"Software": None}, "dpi": 160}),
    )
    for kind, options in plans:
        if kind not in kinds:
            continue
        file = io.BytesIO()
        with warnings.catch_warnings():
            # a sign that the font lacks is drawn as a box, which says enough
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure.savefig(file, format=kind, **options)
        result[kind] = file.getvalue()
    return result


def as_text(name: str) -> str:
    r"""Return a name as text for matplotlib: anybody's, and a dollar begins a formula.

    >>> as_text("a$b" + chr(10))
    'a\\$b\ufffd'
    """
    safe = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return safe.replace("$", r"\$")


def cut(name: str, longest: int) -> str:
    """Return a name of at most so many characters.

    >>> cut("resnet20", 8), cut("resnet110", 8)
    ('resnet20', 'resnet1…')
    """
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
