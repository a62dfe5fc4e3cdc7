"""Which package may import which, read from the sources."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
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

HEAVY = ("torch", "faiss", "matplotlib", "cv2", "scipy")


class Import(NamedTuple):
    """One import and its place in the source."""

    importer: str
    imported: str
    place: str
    stated: bool  # by an import statement, at any depth; else by a dotted path in a table


def name_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(root: Path) -> dict[str, Path]:
    return {name_of(path, root): path for path in sorted(root.rglob("*.py"))}


def imported_by(node: ast.AST, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules of this package that a node imports, tables of dotted paths included."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if inner in known else str(node.module)
    elif (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"visleak(\.\w+)+(:\w+)?", node.value)
    ):
        yield node.value.partition(":")[0]


@cache
def all_imports(root: Path) -> list[Import]:
    known = sources(root)
    return [
        Import(
            module,
            target,
            f"{path.relative_to(root.parent)}:{node.lineno}",
            not isinstance(node, ast.Constant),
        )
        for module, path in known.items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for target in imported_by(node, known)
        if target.split(".")[0] == "visleak" and target != module
    ]


def package(module: str) -> str:
    return (module + ".").split(".")[1]


def fault(each: Import) -> str | None:
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


def wrong_imports(root: Path) -> list[str]:
    return [found for each in all_imports(root) if (found := fault(each))]


def executed(importer: str, imported: str) -> list[str]:
    """Return what an import executes: the module, and the packages around it that are not running.

    A package around the importer runs already; it counts where it is imported by name.
    """
    parts = imported.split(".")
    around = [".".join(parts[:end]) for end in range(1, len(parts))]
    return [imported, *(name for name in around if not f"{importer}.".startswith(f"{name}."))]


def cycles(root: Path) -> list[str]:
    """Return the first import cycle inside each package, as a text."""
    inside: dict[str, dict[str, set[str]]] = {}
    for each in all_imports(root):
        own = each.importer not in ENTRY_POINTS and package(each.importer) == package(each.imported)
        # a table names modules of its package on purpose, and they are imported after it
        if own and each.stated:
            graph = inside.setdefault(package(each.importer), {})
            graph.setdefault(each.importer, set()).update(executed(each.importer, each.imported))
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


def test_no_import_cycle_inside_a_package():
    assert cycles(ROOT) == []


def test_no_module_is_called_utils():
    words = ("utils", "util", "helpers", "misc", "common")
    assert [name for name in sources(ROOT) if name.rpartition(".")[2] in words] == []


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
        ("images/a.py", "from visleak.search import b", "imports visleak.search.b, sideways"),
        ("pipeline/a.py", "from visleak.auditing import x", "imports visleak.auditing, upwards"),
        ("training/a.py", "from visleak import remedy", "imports visleak.remedy, sideways"),
        ("search/b.py", "T = {'a': 'visleak.report.page:f'}", "imports visleak.report.page, up"),
        ("utils.py", "import visleak.errors", "'utils' is in no level"),
        ("report/a.py", "def f():\n import visleak.review", "visleak.report.a imports visleak.rev"),
    ],
)
def test_the_check_finds_a_wrong_import(tmp_path, file, line, message):
    root = tmp_path / "visleak"
    for name in ("remedy.py", "training/b.py", "search/b.py", file):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line if name == file else "")
    (found,) = wrong_imports(root)
    assert message in found
    assert found.startswith(f"visleak/{file}:")


def test_the_check_finds_a_cycle(tmp_path):
    """Also one of function-level imports, which Python would not notice."""
    root = tmp_path / "visleak" / "images"
    root.mkdir(parents=True)
    (root / "a.py").write_text("import visleak.images.b")
    (root / "b.py").write_text("def f():\n    import visleak.images.a")
    (found,) = cycles(root.parent)
    assert "visleak.images.a" in found
    assert "visleak.images.b" in found


def test_packages_are_attributes_and_list_their_functions():
    script = "import visleak; print(*dir(visleak.remedy), *dir(visleak.integrations))"
    command = [sys.executable, "-c", script]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert {"purge", "split", "replace", "duplicate_groups", "sklearn"} <= set(listed)
    assert set(visleak.__all__) == set(dir(visleak))


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
