"""Search services: plugged in, bounded, and never believed."""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from generated_images import World
from PIL import Image

from visleak.errors import UsageError, VisleakError
from visleak.memorization.tracing import Service, load_service, trace
from visleak.memorization.tracing.headline import headlines
from visleak.memorization.tracing.services import LONGEST, MOST

SENDS = "sends pictures to example.org"


class Engine:
    """A service that remembers what it was sent."""

    name, sends = "engine", SENDS

    def __init__(self, answer: Any = ()) -> None:
        self.answer, self.sent = answer, list[bytes]()

    def find(self, files: list[bytes]) -> list[Any]:
        self.sent += files
        return [self.answer for _ in files]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("my_search_plugin")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_only_what_no_set_verified_is_sent(world: World, tmp_path: Path) -> None:
    engine = Engine(["https://a.example/x", {"url": "https://b.example", "similarity": 0.9}])
    found = trace(
        world.extraction,
        [str(world.train), Service(engine, "x:y")],
        tmp_path,
        workers=1,
    )
    assert len(engine.sent) == 1
    with Image.open(io.BytesIO(engine.sent[0])) as picture:
        assert picture.size == (128, 128)
        assert not picture.info
    assert [match.verified for match in found.matches] == [True, True, True, False]


def test_without_sets_all_are_candidates(world: World, tmp_path: Path) -> None:
    engine = Engine(["https://a.example/<img src=x onerror=alert(1)>\n"])
    found = trace(world.extraction, [Service(engine, "x:y")], tmp_path)
    assert headlines(found)[0].startswith("4 clusters are candidates, unverified")
    assert found.matches[0].reference == "https://a.example/<img src=x onerror=alert(1)>"
    assert found.matches[0].grade == ""
    assert math.isnan(found.matches[0].similarity)
    assert r"\<img src=x" in (tmp_path / "trace.md").read_text()
    assert found.about["services"] == [{"name": "engine", "service": "x:y", "sends": SENDS}]


def test_what_comes_back_is_bounded(world: World, tmp_path: Path) -> None:
    engine = Engine([{"url": "h" * 9999, "similarity": math.inf}] * 500)
    found = trace(world.extraction, [Service(engine, "x:y")], tmp_path)
    assert len(str(found.matches[0].reference)) == LONGEST
    assert math.isnan(found.matches[0].similarity)
    assert MOST < 500


def test_all_images_are_never_sent(world: World, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--all and --service: a service is sent one image"):
        trace(world.extraction, [Service(Engine(), "x:y")], tmp_path, every=True)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([{"similarity": 1}], r"--service x:y returned a result without an address"),
        ([7], r"--service x:y returned a result without an address: 7"),
        ([" "], r"--service x:y returned a result without an address: ' '"),
    ],
)
def test_wrong_results(world: World, tmp_path: Path, answer: Any, said: str) -> None:
    with pytest.raises(VisleakError, match=said):
        trace(world.extraction, [Service(Engine(answer), "x:y")], tmp_path)


def test_a_service_that_fails(world: World, tmp_path: Path) -> None:
    engine = Engine()
    engine.find = lambda files: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(VisleakError, match=r"--service x:y failed \(ZeroDivisionError: division"):
        trace(world.extraction, [Service(engine, "x:y")], tmp_path)
    engine.find = lambda files: []  # type: ignore[method-assign,assignment]
    with pytest.raises(VisleakError, match=r"--service x:y answered 0 lists of results for 1"):
        trace(world.extraction, [Service(engine, "x:y")], tmp_path)


def test_loading(module: ModuleType) -> None:
    module.engine, module.Engine = Engine(), Engine  # type: ignore[attr-defined]
    module.group = SimpleNamespace(inner=Engine())  # type: ignore[attr-defined]
    for name in ("engine", "Engine", "group.inner"):
        assert load_service(f"my_search_plugin:{name}").name == "engine"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("my_search_plugin", "--service is package.module:object; got 'my_search_plugin'"),
        (
            "my_search_plugin:none",
            "--service my_search_plugin:none cannot be loaded (AttributeError: module"
            " 'my_search_plugin' has no attribute 'none')",
        ),
        (
            "my_search_plugin:dumb",
            "--service my_search_plugin:dumb: the object needs name, one line of text; got None",
        ),
        (
            "my_search_plugin:silent",
            "--service my_search_plugin:silent: the object needs sends, one line of text; got None",
        ),
        (
            "my_search_plugin:idle",
            "--service my_search_plugin:idle: the object lacks find, the method from PNG files to"
            " results; it is a SimpleNamespace",
        ),
    ],
)
def test_what_is_no_service(module: ModuleType, text: str, said: str) -> None:
    module.dumb = SimpleNamespace()  # type: ignore[attr-defined]
    module.silent = SimpleNamespace(name="x")  # type: ignore[attr-defined]
    module.idle = SimpleNamespace(name="x", sends="y")  # type: ignore[attr-defined]
    with pytest.raises(UsageError) as caught:
        load_service(text)
    assert str(caught.value) == said
