"""A study as its TOML file describes it: sets with their roles, settings, and the comparisons.

Every mistake in the file is one line with file, set and key.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, get_type_hints

from visleak.documents import read_document
from visleak.encoders import ENCODERS
from visleak.encoders.request import parse
from visleak.errors import UsageError, VisleakError, one_line
from visleak.records import ROLES
from visleak.settings import Settings


@dataclass(frozen=True, slots=True)
class Inclusion:
    """Another set that is known to be part of this one."""

    set: str  # name of the other set
    # empty where the pair of sets is not compared at all; else how to tell an image's own copy:
    # ``id`` for equal ids, ``/regex/`` for ids whose first group is equal
    match: str = ""


@dataclass(frozen=True, slots=True)
class StudySet:
    """One named set of the file."""

    name: str  # unique in the study
    dataset: str  # sets of one dataset leak *intra*, of two *inter*
    split: str  # for people
    roles: tuple[str, ...]  # some of ``benchmark``, ``training``, ``pretraining``
    source: str = ""  # SOURCE as it stands in the file; empty if the user has not filled it in
    encoder: str = ""  # of the audit against this set, where it is not that of the study
    # how many images it should hold, as published (``31783`` or ``118k``), or empty
    images: str = ""
    contains: tuple[Inclusion, ...] = ()  # sets that are known to be part of it
    # ``id``, ``label``, ``group``, ``frame`` as `visleak.open_images` takes them
    columns: tuple[tuple[str, str], ...] = ()

    @property
    def is_benchmark(self) -> bool:
        """Whether its images may be queries."""
        return "benchmark" in self.roles

    @property
    def is_training(self) -> bool:
        """Whether its images may be references."""
        return "training" in self.roles or "pretraining" in self.roles


@dataclass(frozen=True, slots=True)
class Study:
    """A file of sets, read and checked."""

    path: Path  # the file; relative sources count from its folder
    title: str  # for people
    sets: tuple[StudySet, ...]  # in the order of the file
    settings: Settings  # of every audit; ``within`` is asked for once, apart
    thresholds: Path | None = None  # file of ``visleak calibrate``, or ``None``
    # which sets take part in the comparisons between datasets, in the order of the figure's rows
    # and columns; empty if the roles decide
    references: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    paper: Path | None = None  # file of published values to print beside, or ``None``

    def named(self, name: str) -> StudySet:
        """Return the set of a name."""
        return next(each for each in self.sets if each.name == name)


def fits(published: str, count: int) -> bool:
    """Whether a number of images is the published one; nothing published fits everything.

    >>> fits("31783", 31_783), fits("118k", 118_287), fits("118k", 117_999), fits("", 3)
    (True, True, False, True)
    """
    if published.endswith("k"):
        return count // 1000 == int(published[:-1])
    return not published or count == int(published)


#: Larger files are not lists of sets.
LIMIT: Final = 10 << 20

_TOP: Final = ("title", "paper", "audit", "matrix", "sets")
_MATRIX: Final = ("references", "queries")
_COLUMNS: Final = ("id", "label", "group", "frame")
_TEXTS: Final = ("dataset", "split", "source", "encoder", *_COLUMNS)
_SET: Final = (*_TEXTS, "roles", "images", "contains")
_LETTERS: Final = {role[0].upper(): role for role in ROLES}
_KINDS: Final[Mapping[type, str]] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the file, and how complaints call it."""

    path: Path
    name: str
    content: Mapping[str, Any]

    def fault(self, key: str, words: str, what: str = "key") -> UsageError:
        """Return a complaint in one line: file, table, key, what is wrong."""
        named = [str(self.path), *filter(None, [self.name]), f"{what} {key!r}" if key else what]
        return UsageError(f"{', '.join(named)}: {words}")

    def refuse_unknown(self, known: Sequence[str]) -> None:
        for key in self.content:
            if key not in known:
                raise self.fault(key, f"there is no such key; {_meant(key, known)}")

    def get(self, key: str, *kinds: type) -> Any:
        """Return a value of one of the kinds, ``None`` if the key is missing."""
        value = self.content.get(key)
        # booleans are integers in Python, but not here
        if value is None or type(value) in kinds or (type(value) is int and float in kinds):
            return value
        wanted = " or ".join(_KINDS[kind] for kind in kinds)
        raise self.fault(key, f"must be {wanted}; got {_shown(value)}")

    def text(self, key: str) -> str:
        return str(self.get(key, str) or "")

    def file(self, key: str) -> Path | None:
        return self.path.parent / self.text(key) if self.text(key) else None

    def encoder(self) -> str:
        """Return the text of an encoder that there is; nothing of it is loaded."""
        text = self.text("encoder")
        try:
            name = parse(text).name if text else ""
        except UsageError as error:
            raise self.fault("encoder", str(error)) from error
        if text and name not in ENCODERS:
            problem = f"there is no encoder {name!r}; {_meant(name, tuple(ENCODERS))}"
            raise self.fault("encoder", problem)
        return text

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, none twice."""
        values = self.get(key, list) or []
        for value in values:
            if not isinstance(value, str):
                raise self.fault(key, f"must be a list of texts; got {_shown(value)} in it")
            if values.count(value) > 1:
                raise self.fault(key, f"{value!r} is listed twice")
        return tuple(values)

    def inner(self, key: str) -> _Table:
        return _Table(self.path, f"[{key}]", self.get(key, dict) or {})


def read_study(path: str | os.PathLike[str]) -> Study:
    """Read a file of sets.

    Args:
        path: a TOML file: ``[sets.NAME]`` tables, and perhaps ``title``, ``paper``, ``[audit]``
            and ``[matrix]``.

    Raises:
        UsageError: there is no such file, it is not TOML, or something in it is wrong.
    """
    file = Path(path)
    top = _Table(file, "", _parsed(file))
    top.refuse_unknown(_TOP)
    sets = _sets(top)
    audit, matrix = top.inner("audit"), top.inner("matrix")
    matrix.refuse_unknown(_MATRIX)
    references, queries = (_side(matrix, key, sets) for key in _MATRIX)
    return Study(
        path=file,
        title=top.text("title") or file.stem,
        sets=sets,
        settings=_settings(audit),
        thresholds=audit.file("thresholds"),
        references=references,
        queries=queries,
        paper=top.file("paper"),
    )


def _parsed(file: Path) -> Mapping[str, Any]:
    if not file.is_file():
        raise UsageError(f"config {file} is not a file; it is a TOML file with [sets.NAME] tables")
    try:
        with file.open("rb") as data:
            raw = data.read(LIMIT + 1)
        if len(raw) > LIMIT:
            raise UsageError(
                f"config {file} has more than {LIMIT >> 20} MB: it is not a list of sets"
            )
        return tomllib.loads(raw.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"config {file} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"config {file} is not valid TOML: {one_line(error)}") from error


def _sets(top: _Table) -> tuple[StudySet, ...]:
    content = top.get("sets", dict)
    if not content:
        raise top.fault("sets", "there are no sets; write a table [sets.NAME] for each")
    for name, value in content.items():
        if not isinstance(value, dict):
            raise top.fault(f"sets.{name}", f"must be a table [sets.NAME]; got {_shown(value)}")
    tables = {name: _Table(top.path, f"set {name!r}", own) for name, own in content.items()}
    sets = tuple(_set(name, table) for name, table in tables.items())
    for each in sets:
        for part in each.contains:
            if part.set not in tables:
                problem = f"there is no set {part.set!r}; {_meant(part.set, list(tables))}"
                raise tables[each.name].fault("contains", problem)
            if part.set == each.name:
                problem = "a set is not part of itself; leave it out"
                raise tables[each.name].fault("contains", problem)
    return sets


def _set(name: str, table: _Table) -> StudySet:
    if not name.strip():
        raise table.fault("", "a set needs a name: [sets.NAME]", "name")
    table.refuse_unknown(_SET)
    texts = {key: table.text(key) for key in _TEXTS}
    images = table.get("images", int, str)
    count = "" if images is None else str(images)
    if count and not re.fullmatch(r"[0-9]+k?", count):
        raise table.fault("images", f'must be a count such as 31783 or "118k"; got {images!r}')
    return StudySet(
        name=name,
        dataset=texts["dataset"] or name,
        split=texts["split"],
        roles=_roles(table),
        source=texts["source"],
        encoder=table.encoder(),
        images=count,
        contains=tuple(_contains(table)),
        columns=tuple((key, texts[key]) for key in _COLUMNS if texts[key]),
    )


def _roles(table: _Table) -> tuple[str, ...]:
    """Return the roles of a set; B, T and P stand for the three words."""
    given = table.names("roles")
    for word in given:
        if _LETTERS.get(word, word) not in ROLES:
            raise table.fault("roles", f"{word!r} is not a role; {_meant(word, ROLES)}")
    if not given:
        raise table.fault("roles", f"is missing; give some of {', '.join(ROLES)}")
    return tuple(dict.fromkeys(_LETTERS.get(word, word) for word in given))


def _contains(table: _Table) -> Iterator[Inclusion]:
    """Yield the known inclusions: names, or tables with ``set`` and ``match``."""
    for value in table.get("contains", list) or []:
        if isinstance(value, str):
            yield Inclusion(value)
            continue
        if not isinstance(value, dict):
            words = f"lists names of sets, or {{set = .., match = ..}}; got {_shown(value)}"
            raise table.fault("contains", words)
        inner = _Table(table.path, f"{table.name}, key 'contains'", value)
        inner.refuse_unknown(("set", "match"))
        if not inner.text("set"):
            raise inner.fault("set", "is missing; name the set that is part of this one")
        yield Inclusion(inner.text("set"), _match(inner))


def _match(table: _Table) -> str:
    """Return how own copies are told: nothing, ``id``, or ``/regex/`` with a group."""
    match = table.text("match")
    if match in ("", "id"):
        return match
    try:
        if len(match) > 2 and match[0] == match[-1] == "/" and re.compile(match[1:-1]).groups:
            return match
    except re.error as error:
        words = f"{match!r} is not a regular expression: {error}"
        raise table.fault("match", words) from error
    raise table.fault("match", f'must be "id" or "/regex/" with a group; got {match!r}')


def _settings(audit: _Table) -> Settings:
    """Return the settings of ``[audit]``, whose keys are those of :class:`Settings`."""
    hints = get_type_hints(Settings)
    audit.refuse_unknown((*(field.name for field in fields(Settings)), "thresholds"))
    given: dict[str, Any] = {}
    for key in audit.content:
        if key != "thresholds":
            kinds = getattr(hints[key], "__args__", (hints[key],))
            given[key] = audit.get(key, *(kind for kind in kinds if kind is not type(None)))
    audit.encoder()
    # duplicates within a set are not leaks, and do not depend on the other sets
    given.setdefault("within", False)
    key = ""
    try:
        for key, value in given.items():
            Settings(**{key: value})
        key = ""
        return Settings(**given)
    except UsageError as error:
        raise audit.fault(key, str(error), "key" if key else "keys") from error


def _side(matrix: _Table, key: str, sets: Sequence[StudySet]) -> tuple[str, ...]:
    """Return the names of ``[matrix]`` of a side; refuse any that are not sets of that side."""
    known = {each.name: each for each in sets}
    for name in matrix.names(key):
        if name not in known:
            raise matrix.fault(key, f"there is no set {name!r}; {_meant(name, list(known))}")
        if key == "references" and not known[name].is_training:
            raise matrix.fault(key, f"{name!r} has neither the role training nor pretraining")
        if key == "queries" and not known[name].is_benchmark:
            raise matrix.fault(key, f"{name!r} has not the role benchmark")
    return matrix.names(key)


def _meant(word: str, known: Sequence[str]) -> str:
    """Return what was most likely meant, else all that is known.

    >>> _meant("rolls", ["roles", "source"]), _meant("x", ["roles", "source"])
    ("did you mean 'roles'?", 'known are roles, source')
    """
    near = difflib.get_close_matches(word, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"


def _shown(value: object) -> str:
    """Return a value as the file's reader calls it.

    >>> _shown(True), _shown(3), _shown([1])
    ('true', '3', 'a list')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return _KINDS[type(value)]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


# -- published values to print beside one's own: a JSON file, in per cent -------------------------


KIND: Final = "visleak published values"
SCHEMA: Final = 1

#: Rates that may be published.
RATES: Final = ("hard", "soft", "hard_or_soft")

#: What is printed: one number, a range of which it is one, or nothing.
Value = float | tuple[float, float] | None

Values = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Paper:
    """What somebody published."""

    source: str  # whose numbers they are
    cells: Mapping[tuple[str, str], Values]  # (query, reference) to rates in per cent
    intra: Mapping[str, Values]  # query to its rates in all other sets of its dataset together

    def of(self, query: str, reference: str) -> Values:
        """Return what is published of a comparison; the total is the sum where none is printed."""
        return self.cells.get((query, reference), {})


NOTHING: Final = Paper("", {}, {})


def read_paper(path: Path) -> Paper:
    """Read published values."""
    if not path.is_file():
        raise UsageError(f"published values {path} is not a file; leave `paper` out, or name one")
    content = read_document(path, KIND, SCHEMA, "it holds no published values (docs/study.md)")

    def text(row: Mapping[str, Any], key: str) -> str:
        value = row.get(key)
        if not isinstance(value, str) or not value:
            raise TypeError(f"{key} is missing, or no text, in {str(row)[:60]}")
        return value

    def rows(key: str) -> list[Mapping[str, Any]]:
        found = content.get(key, [])
        if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
            raise TypeError(f"{key} is not a list of objects")
        return found

    try:
        cells = {(text(r, "query"), text(r, "reference")): _values(r) for r in rows("cells")}
        intra = {text(row, "query"): _values(row) for row in rows("intra")}
        return Paper(text(content, "source"), cells, intra)
    except (TypeError, ValueError, KeyError) as error:
        raise VisleakError(f"published values {path} is damaged: {error}") from error


def _values(row: Mapping[str, Any]) -> Values:
    values: dict[str, Value] = {name: _value(row[name]) for name in RATES if name in row}
    hard, soft = values.get("hard"), values.get("soft")
    if "hard_or_soft" not in values and isinstance(hard, float) and isinstance(soft, float):
        values["hard_or_soft"] = round(hard + soft, 6)
    return values


def _value(given: object) -> Value:
    """Return a number, a range or nothing.

    >>> _value(3), _value([1.35, 1.38]), _value(None)
    (3.0, (1.35, 1.38), None)
    """
    if given is None:
        return None
    numbers: list[Any] = given if isinstance(given, list) and len(given) == 2 else [given]
    for number in numbers:
        known = isinstance(number, int | float) and not isinstance(number, bool)
        if not known or not 0.0 <= number <= 100.0:
            raise ValueError(f"{number!r} is not a number of per cent")
    low, high = float(numbers[0]), float(numbers[-1])
    return (low, high) if numbers is given else low


def shown(value: Value) -> str:
    """Return a value as it is printed; empty if none is.

    >>> shown(0.5), shown((1.35, 1.38)), shown(None)
    ('0.50', '1.35-1.38', '')
    """
    if value is None:
        return ""
    return "-".join(f"{each:.2f}" for each in (value if isinstance(value, tuple) else (value,)))


# -- which sets are compared with which: by their roles and what is known --------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """A query set against a reference set."""

    # names of the sets
    query: str
    reference: str
    coverage: str  # ``intra`` within a dataset, ``inter`` between two
    # how images are told that are known to be in both (see ``Inclusion``), or empty
    match: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A comparison that is not made, and why, in words."""

    comparison: Comparison
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All comparisons of a study."""

    comparisons: tuple[Comparison, ...]  # that are made
    # that would find what is known: one set is part of the other
    included: tuple[LeftOut, ...] = ()
    skipped: tuple[LeftOut, ...] = ()  # that would be made if their sets were there
    idle: tuple[str, ...] = ()  # sets that are in no comparison at all

    def by_reference(self) -> dict[str, tuple[Comparison, ...]]:
        """Return the comparisons by reference set: one audit each."""
        references = dict.fromkeys(each.reference for each in self.comparisons)
        return {
            name: tuple(each for each in self.comparisons if each.reference == name)
            for name in references
        }


def plan(study: Study, missing: Mapping[str, str] | None = None) -> Plan:
    """Return every comparison that makes sense; ``missing``: sets that are not there, and why.

    Within a dataset, a set is compared with the sets that come before it in use: a benchmark
    with all that is trained on, a set that serves as both with what is only trained on. Between
    datasets the same, or exactly the sets that ``[matrix]`` names.

    Source: the comparisons of Ramos et al. 2025, section 4.
    """
    missing = missing or {}
    made, included, skipped = [], [], []
    for query, reference in _couples(study):
        coverage = "intra" if query.dataset == reference.dataset else "inter"
        whole, match = _known(study, query.name, reference.name)
        each = Comparison(query.name, reference.name, coverage, match)
        if whole:
            included.append(LeftOut(each, whole))
        elif absent := [name for name in (query.name, reference.name) if name in missing]:
            skipped.append(LeftOut(each, f"needs {' and '.join(absent)}"))
        else:
            made.append(each)
    seen = [*made, *(left.comparison for left in (*included, *skipped))]
    busy = {name for each in seen for name in (each.query, each.reference)}
    idle = tuple(each.name for each in study.sets if each.name not in busy)
    return Plan(tuple(made), tuple(included), tuple(skipped), idle)


def _couples(study: Study) -> Iterator[tuple[StudySet, StudySet]]:
    """Yield the queries and references to compare, in the order of the file."""
    for reference, query in itertools.product(study.sets, study.sets):
        if query.dataset == reference.dataset or not (study.references or study.queries):
            # a set that is used before another: training, then both, then benchmark only
            roles = query.is_benchmark and reference.is_training
            belong = roles and not (query.is_training and reference.is_benchmark)
        else:
            # a side that ``[matrix]`` leaves open goes by role
            asked = query.name in study.queries if study.queries else query.is_benchmark
            trains = study.references
            belong = asked and (reference.name in trains if trains else reference.is_training)
        if belong:
            yield query, reference


def _known(study: Study, query: str, reference: str) -> tuple[str, str]:
    """Return why two sets are not compared, and how common images are told; both may be empty."""
    for whole, part in ((reference, query), (query, reference)):
        direct = [i for i in study.named(whole).contains if i.set == part]
        if direct and direct[0].match:
            return "", direct[0].match
        if direct or part in _parts(study, whole):
            return f"{part} is part of {whole}", ""
    return "", ""


def _parts(study: Study, name: str) -> set[str]:
    """Return everything a set is known to hold: a part of a part is a part."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for inclusion in study.named(waiting.pop()).contains:
            if inclusion.set not in found:
                found.add(inclusion.set)
                waiting.append(inclusion.set)
    return found
