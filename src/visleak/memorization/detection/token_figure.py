"""The figure of tokens: prompts as text, each token as dark as it counts."""

from __future__ import annotations

from typing import Any, Final

from visleak.drawing import as_text, cut, figure_of, saved
from visleak.memorization.detection.headline import number
from visleak.memorization.detection.results import Attribution, Detection

#: Prompts and tokens that a figure has room for; the tables have all.
PROMPTS: Final = 12
TOKENS: Final = 60
LONGEST: Final = 28

#: Inches.
WIDTH: Final = 7.4
LINE: Final = 0.27
MARGIN: Final = 0.14
BETWEEN: Final = 0.09

#: Raises D, lowers D (Wong 2011).
MORE: Final = (213, 94, 0)
LESS: Final = (0, 114, 178)

_QUIET: Final = "#5b636d"


def tokens_figure(result: Detection) -> dict[str, bytes]:
    """Return prompts with coloured tokens as SVG and PNG; nothing where none was attributed."""
    shown = result.tokens[:PROMPTS]
    if not shown:
        return {}
    with figure_of((WIDTH, 1.0)) as figure:
        lines = [_lines(figure, each) for each in shown]
    height = 0.7 + sum(LINE * (1 + len(own)) + BETWEEN for own in lines) + 0.08
    with figure_of((WIDTH, height)) as figure:
        figure.text(
            MARGIN / WIDTH, 1 - 0.12 / height, "What D depends on", va="top",
            fontweight="bold", fontsize=11.5,
        )  # fmt: skip
        figure.text(
            MARGIN / WIDTH, 1 - 0.37 / height, _told(result), va="top", fontsize=9, color=_QUIET
        )
        at = height - 0.75
        for rank, (each, own) in enumerate(zip(shown, lines, strict=True), 1):
            figure.text(
                MARGIN / WIDTH, at / height, f"{rank}   D {number(each.d)}", va="center",
                fontsize=8.5, color=_QUIET,
            )  # fmt: skip
            for line in own:
                at -= LINE
                for left, text, value in line:
                    _draw(figure, left, at / height, text, value)
            at -= LINE + BETWEEN
        return saved(figure, "detect tokens")


def _told(result: Detection) -> str:
    first = result.tokens[0]
    left = len(result.tokens) - PROMPTS
    more = f"; {left} more prompts in the table" if left > 0 else ""
    if first.method == "gradient":
        return f"norm of D's gradient by token, darkest the largest of its prompt{more}"
    return f"what D loses without the word (orange) or gains (blue), darkest the largest{more}"


def _lines(figure: Any, each: Attribution) -> list[list[tuple[float, str, float]]]:
    """Return the tokens as lines of place (inches), text and value relative to the largest."""
    largest = max((abs(value) for value in each.values), default=0.0) or 1.0
    lines: list[list[tuple[float, str, float]]] = [[]]
    left = MARGIN
    for token, value in list(zip(each.tokens, each.values, strict=True))[:TOKENS]:
        text = as_text(cut(token, LONGEST)) or " "
        wide = _width(figure, text)
        if left + wide > WIDTH - MARGIN and lines[-1]:
            lines.append([])
            left = MARGIN
        lines[-1].append((left, text, value / largest))
        left += wide
    if len(each.tokens) > TOKENS:
        lines.append([(MARGIN, f"… {len(each.tokens) - TOKENS} more", 0.0)])
    return lines


def _width(figure: Any, text: str) -> float:
    """Return how wide a token is drawn, with its box, in inches."""
    drawn = figure.text(0, 0, text, fontsize=9.5)
    wide = drawn.get_window_extent(figure.canvas.get_renderer()).width / figure.dpi
    drawn.remove()
    return float(wide) + 0.13


def _draw(figure: Any, left: float, at: float, text: str, value: float) -> None:
    colour = MORE if value >= 0 else LESS
    share = 0.85 * min(abs(value), 1.0)
    face = tuple((255 - share * (255 - each)) / 255 for each in colour)
    figure.text(
        (left + 0.04) / WIDTH, at, text, va="center", fontsize=9.5, color="#1d2127",
        bbox={"boxstyle": "square,pad=0.2", "facecolor": face, "edgecolor": "none"},
    )  # fmt: skip
