"""Which package may import which, read from the sources."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import visleak

ROOT = Path(visleak.__file__).parent

#: Packages by level. A package imports only those of lower levels.
LEVELS = (
    ("errors",),
    ("lazy", "records", "options", "quantities", "rates", "devices"),
    ("settings", "groups", "vectors", "documents", "templates", "delimited"),
    ("stats",),
    ("images", "encoders", "search", "verification", "grading"),
    ("formats", "progress"),
    ("storage",),
    ("reporting",),
    ("grouping",),
    ("pipeline",),
    ("verdicts",),
    ("auditing",),
    ("remedy", "training", "diffusion"),
    (
        *("report", "export", "embedding", "review", "diff", "gating", "impact", "robustness"),
        *("dlede", "memorization", "study", "doctor", "integrity", "two_images", "integrations"),
    ),
    ("cli",),
)
LEVEL = {package: level for level, packages in enumerate(LEVELS) for package in packages}

#: Modules that may import everything: the public names and ``python -m visleak``.
ENTRY_POINTS = ("visleak", "visleak.__main__")

#: A module, or a name in it, in a table of what is imported on use.
DOTTED = re.compile(r"visleak(\.\w+)+(:\w+)?")

HEAVY = ("torch", "faiss", "matplotlib", "cv2", "scipy")


class Import(NamedTuple):
    """One import and its place in the source."""

    importer: str
    imported: str
    place: str
    stated: bool  # by an import statement, at any depth; else by a dotted path in a table


def sources(root):
    """Return the files of all modules by name."""
    found = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imported_by(node, known):
    """Yield the modules of this package that a node imports, tables of dotted paths included."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if inner in known else str(node.module)
    elif isinstance(node, ast.Constant) and DOTTED.fullmatch(str(node.value)):
        yield node.value.partition(":")[0]


@cache
def all_imports(root):
    known = sources(root)
    found = []
    for module, path in known.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for target in imported_by(node, known):
                if target.split(".")[0] == "visleak" and target != module:
                    place = f"{path.relative_to(root.parent)}:{node.lineno}"
                    found.append(Import(module, target, place, not isinstance(node, ast.Constant)))
    return found


def package(module):
    return (module + ".").split(".")[1]


def fault(each):
    """Return what is wrong with an import, in one line that names the file and the import."""
    here, there = package(each.importer), package(each.imported)
    if each.importer in ENTRY_POINTS or each.imported == "visleak" or here == there:
        return None
    for name in (here, there):
        if name not in LEVEL:
            return f"{each.place}: {name!r} is in no level ({each.imported})"
    if LEVEL[there] < LEVEL[here]:
        return None
    way = "sideways" if LEVEL[there] == LEVEL[here] else "upwards"
    return f"{each.place}: {each.importer} imports {each.imported}, {way}"


def wrong_imports(root):
    return [found for each in all_imports(root) if (found := fault(each))]


def cycles(root):
    """Return the first import cycle inside each package, as a text."""
    inside = {}
    for each in all_imports(root):
        own = each.importer not in ENTRY_POINTS and package(each.importer) == package(each.imported)
        # a table names modules of its package on purpose, and they are imported after it
        if own and each.stated:
            graph = inside.setdefault(package(each.importer), {})
            graph.setdefault(each.importer, set()).add(each.imported)
            # so are the packages around it, but for those that are running already
            around, _, _ = each.imported.rpartition(".")
            while not f"{each.importer}.".startswith(f"{around}."):
                graph[each.importer].add(around)
                around, _, _ = around.rpartition(".")
    found = []
    for graph in inside.values():
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            found.append(" -> ".join(reversed(error.args[1])))
    return found


def test_no_upward_or_sideways_import():
    assert wrong_imports(ROOT) == []


def test_packages_import_few_others():
    packages = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    between = {(package(each.importer), package(each.imported)) for each in all_imports(ROOT)}
    assert sum(a != b and {a, b} <= packages for a, b in between) <= 120


def test_no_module_is_called_utils():
    words = ("utils", "util", "helpers", "misc", "common")
    assert [name for name in sources(ROOT) if name.rpartition(".")[2] in words] == []


def test_no_import_cycle_inside_a_package():
    assert cycles(ROOT) == []


def test_every_module_is_in_a_level():
    assert {package(name) for name in sources(ROOT) if name not in ENTRY_POINTS} <= set(LEVEL)


def test_dotted_paths_in_tables_exist():
    known = set(sources(ROOT))
    lost = [
        f"{each.place}: {each.imported}"
        for each in all_imports(ROOT)
        if each.imported not in known and each.imported.rpartition(".")[0] not in known
    ]
    assert lost == []


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("records.py", "import visleak.settings", "visleak.records imports visleak.settings, up"),
        ("training/a.py", "from visleak import remedy", "imports visleak.remedy, sideways"),
        ("search/b.py", "T = {'a': 'visleak.report.page:f'}", "imports visleak.report.page, up"),
        ("utils.py", "import visleak.errors", "'utils' is in no level"),
        ("images/a.py", "def f():\n import visleak.images.b", "images.b -> visleak.images.a"),
    ],
)
def test_the_checks_find_a_wrong_import_and_a_cycle(tmp_path, file, line, message):
    root = tmp_path / "visleak"
    other = {"images/b.py": "import visleak.images.a"}
    for name, text in ({"remedy.py": "", "search/b.py": ""} | other | {file: line}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (found,) = [*wrong_imports(root), *cycles(root)]
    assert message in found


def test_importing_visleak_is_light():
    script = (
        "import sys, time; start = time.process_time(); import visleak;"
        "print(time.process_time() - start, *sys.modules)"
    )
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, *loaded = ran.stdout.split()
    assert [name for name in HEAVY if name in loaded] == []
    assert float(seconds) < 0.5
