"""Texts of anybody as one cell of Markdown or LaTeX, which cannot begin markup."""

from __future__ import annotations

from typing import Final

_LATEX: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "–": "--",
    "…": r"\ldots{}",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


def markdown_cell(text: str) -> str:
    r"""Return a text as a cell of a Markdown table.

    >>> print(markdown_cell("a|b<c>"))
    a\|b\<c\>
    """
    safe = "".join(c if c.isprintable() else " " for c in text)
    for sign in "\\|`*_[]<>":
        safe = safe.replace(sign, f"\\{sign}")
    return safe


def latex_cell(text: str) -> str:
    r"""Return a text as a cell of a LaTeX table.

    >>> print(latex_cell("50 % of a_b & \\input{x}"))
    50 \% of a\_b \& \textbackslash{}input\{x\}
    """
    safe = "".join(c if c.isprintable() else " " for c in text)
    return "".join(_LATEX.get(c, c) for c in safe)


def markdown_table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Return a table as lines of Markdown, the first column to the left."""
    aligned = "|".join(["---", *("---:" for _ in header[1:])])
    lines = [f"| {' | '.join(map(markdown_cell, header))} |", f"|{aligned}|"]
    return [*lines, *(f"| {' | '.join(map(markdown_cell, row))} |" for row in rows)]


def latex_table(header: list[str], rows: list[list[str]], caption: str) -> list[str]:
    """Return a table as lines of LaTeX; needs the package booktabs."""
    body = [" & ".join(map(latex_cell, row)) + r" \\" for row in rows]
    return [
        r"\begin{table}",
        r"\centering\small",
        rf"\caption{{{latex_cell(caption)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        " & ".join(map(latex_cell, header)) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
