"""Results of gates as JUnit, SARIF and annotations of GitHub, for the tools that run them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree

import visleak
from visleak.gating.baseline import Baseline, new_leaks, pair_line, worst
from visleak.gating.gates import WITHOUT_PAIRS, Gate, checked, judged
from visleak.records import PairRow
from visleak.storage import AuditSummary
from visleak.templates import plain
from visleak.verdicts import judged_summary
from visleak.verdicts.level import Level

#: Formats in addition to the summary and the JSON of an audit.
FORMATS: Final = ("junit", "sarif", "github")

#: Images that a failed gate names; GitHub shows ten annotations per step.
MOST: Final = {"junit": 100, "sarif": 1000, "github": 10}


@dataclass(frozen=True, slots=True)
class GateResult:
    """Whether a query set passes a gate."""

    gate: str  # its name
    query_set: str  # name of the set
    tripped: bool  # more leaks than allowed
    line: str  # what was found, and what is allowed
    # rows of ``pairs.parquet``: the worst pair of each leaking image, worst first
    pairs: Sequence[PairRow] = ()


def render(
    format: str, gates: Sequence[Gate], folder: Path, baseline: Baseline | None = None
) -> str:
    """Return the results of gates on a finished audit; with a baseline only new leaks trip them."""
    summary = judged_summary(folder)
    found = list(results(gates, folder, summary, baseline, MOST[format]))
    writers = {"junit": _junit, "sarif": _sarif, "github": _github}
    return writers[format](found, summary)


def results(
    gates: Sequence[Gate], folder: Path, summary: AuditSummary, baseline: Baseline | None, most: int
) -> Iterator[GateResult]:
    """Yield the result of each gate for each set."""
    pairs: Sequence[PairRow]
    by_pairs = [gate for gate in gates if gate.name not in WITHOUT_PAIRS]
    if baseline is not None:
        for each in checked(by_pairs, folder, summary, baseline) if by_pairs else ():
            pairs = worst(each.found, most) if each.tripped else ()
            yield GateResult(each.gate.name, each.found.query_set, each.tripped, each.line, pairs)
        gates = [gate for gate in gates if gate.name in WITHOUT_PAIRS]
    for one in judged(gates, summary):
        pairs = ()
        if one.tripped and one.gate.name not in WITHOUT_PAIRS:
            found = new_leaks(folder, summary, Level(one.gate.name))
            pairs = next(worst(own, most) for own in found if own.query_set == one.set_name)
        yield GateResult(one.gate.name, one.set_name, one.tripped, one.line, pairs)


def _file(summary: AuditSummary, row: PairRow) -> str:
    """Return the file of a query relative to the working folder, or that of its set."""
    about = summary.set_of(row["query_set"])
    place = about and about.place(summary.opened_in)
    if not place:
        return ""
    image = place / row["query"]
    return Path(os.path.relpath(image if image.is_file() else place)).as_posix()


def _junit(found: Iterable[GateResult], summary: AuditSummary) -> str:
    found = list(found)
    failures = str(sum(each.tripped for each in found))
    suites = ElementTree.Element("testsuites")
    about = {"name": "visleak", "tests": str(len(found)), "failures": failures}
    suite = ElementTree.SubElement(suites, "testsuite", about | {"errors": "0", "skipped": "0"})
    for each in found:
        name = {"classname": f"visleak.{each.gate}", "name": plain(each.query_set)}
        case = ElementTree.SubElement(suite, "testcase", name)
        if each.tripped:
            failed = ElementTree.SubElement(case, "failure", message=plain(each.line))
            failed.text = "\n".join(map(pair_line, each.pairs))
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _sarif(found: Iterable[GateResult], summary: AuditSummary) -> str:
    found = list(found)
    rules = dict.fromkeys(each.gate for each in found)
    noted = [_sarif_result(each, each.line, None) for each in found if each.tripped]
    noted += [
        _sarif_result(each, pair_line(row), _file(summary, row))
        for each in found
        for row in each.pairs
    ]
    driver = {
        "name": "visleak",
        "version": visleak.__version__,
        "rules": [
            {"id": f"leak/{name}", "shortDescription": {"text": f"gate {name}"}} for name in rules
        ],
    }
    content = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": noted}],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _sarif_result(each: GateResult, text: str, file: str | None) -> dict[str, object]:
    result: dict[str, object] = {
        "ruleId": f"leak/{each.gate}",
        "level": "error",
        "message": {"text": text},
    }
    if file:
        place = {"artifactLocation": {"uri": quote(file, errors="surrogateescape")}}
        result["locations"] = [{"physicalLocation": place}]
    return result


def _github(found: Iterable[GateResult], summary: AuditSummary) -> str:
    lines = []
    for each in found:
        if not each.tripped:
            lines.append(f"::notice title=visleak::{_data(each.line)}")
            continue
        lines.append(f"::error title=visleak::{_data(each.line)}")
        for row in each.pairs:
            file = _property(_file(summary, row))
            title = _property(f"visleak {each.gate}")
            lines.append(f"::error file={file},title={title}::{_data(pair_line(row))}")
    return "".join(f"{line}\n" for line in lines)


def _data(text: str) -> str:
    """Escape the message of a command of GitHub's runners."""
    return plain(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape a property of a command of GitHub's runners.

    >>> _property("a,b:c%")
    'a%2Cb%3Ac%25'
    """
    return _data(text).replace(":", "%3A").replace(",", "%2C")
