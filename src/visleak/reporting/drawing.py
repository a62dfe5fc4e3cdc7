"""Figures by matplotlib in one style, as SVG and PNG; the same numbers give the same bytes."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: Final[dict[str, object]] = {
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


#: Colours that differ for colour-blind readers too (Wong 2011), marks that differ in print, and the
#: colours of texts.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKS: Final = ("o", "s", "^", "D", "v", "P")
INK: Final = "#1d2127"
QUIET: Final = "#5b636d"


@contextmanager
def figure_of(size: tuple[float, float]) -> Iterator[Figure]:
    """Give an empty figure in this style, without a display."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)  # a home that cannot be written to is reported by the cache
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    finally:
        logger.setLevel(level)

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)  # type: ignore[arg-type]
        figure = Figure(figsize=size)
        FigureCanvasAgg(figure)
        yield figure


def titled(figure: Figure, title: str, below: str) -> None:
    """Write the title of a figure, and a line about it, at its upper left."""
    width, height = figure.get_size_inches()
    for down, text, look in (
        (0.12, title, {"fontweight": "bold", "fontsize": 11.5}),
        (0.37, below, {"fontsize": 9, "color": QUIET}),
    ):
        figure.text(0.12 / width, 1 - down / height, text, look, va="top", ha="left")


def saved(figure: Figure, name: str, kinds: Sequence[str] = ("svg", "png")) -> dict[str, bytes]:
    """Return a figure's files, ``{"svg": .., "png": ..}``, without date or version."""
    import matplotlib as mpl

    result = {}
    mpl.rcParams["svg.hashsalt"] = f"visleak {name}"
    unset = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
    for kind in kinds:
        file = io.BytesIO()
        with warnings.catch_warnings():
            # a sign that the font lacks is drawn as a box, which says enough
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure.savefig(file, format=kind, metadata=unset[kind], dpi=160)
        result[kind] = file.getvalue()
    return result


def as_text(name: str) -> str:
    r"""Return a name as text for matplotlib: anybody's, and a dollar begins a formula.

    >>> as_text("a$b" + chr(10))
    'a\\$b\ufffd'
    """
    return printable(name).replace("$", r"\$")


def printable(text: str, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """Return a text with another character in place of those that cannot be printed."""
    return "".join(c if c.isprintable() else instead for c in text)


def cut(name: str, longest: int) -> str:
    """Return a name of at most so many characters.

    >>> cut("resnet20", 8), cut("resnet110", 8)
    ('resnet20', 'resnet1…')
    """
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
