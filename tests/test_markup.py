"""Anybody's text in tables: as it is, and never as markup."""

import re

from hypothesis import given
from hypothesis import strategies as st

from visleak.reporting.markup import Grid, latex_cell, latex_table, markdown_cell, markdown_table

HOSTILE = ("<img src=x onerror=alert(1)>", "a|b", "$x_y$ & 50%", "=cmd()", "two\nlines", "[6pt]*")


@given(st.text())
def test_a_markdown_cell_stays_in_its_cell(text):
    """Every sign that could begin markup has a backslash of its own before it."""
    cell = markdown_cell(text)
    assert cell.isprintable()
    assert not re.search(r"[|`*_\[\]<>$~#&]", re.sub(r"\\.", "", cell))
    assert re.sub(r"\\(.)", r"\1", cell) == "".join(c if c.isprintable() else " " for c in text)


@given(st.text(alphabet=st.characters(codec="ascii")))
def test_a_latex_cell_has_no_open_command(text):
    """What is left without the commands that are written here has no active sign."""
    cell = latex_cell(text)
    bare = re.sub(r"\\(text[a-z]+|ldots)\{\}|\\[&%$#_{}]|\{''\}|\{[\[*]\}|-\{\}", "", cell)
    assert not re.search(r'[\\{}$&#^_~%"<>|\n]', bare)
    assert "--" not in cell


def test_hostile_names_leave_tables_their_shape():
    rows = [[name, "-1.5 to 1.0-2.0"] for name in HOSTILE]
    grid = Grid("Names", ["name", "n"], rows, bold=frozenset({(1, 0)}))
    lines = markdown_table(grid)
    assert lines[:2] == ["| name | n |", "|---|---:|"]
    assert len(lines) == 2 + len(HOSTILE)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}
    assert lines[3] == r"| **a\|b** | -1.5 to 1.0-2.0 |"
    rows = [line for line in latex_table(grid) if line.endswith(r"\\")][1:]
    assert len(rows) == len(HOSTILE)
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {1}
    assert rows[1] == r"\textbf{a\textbar{}b} & $-$1.5 to 1.0-2.0 \\"
    assert rows[-1].startswith("{[}6pt]{*} &")
