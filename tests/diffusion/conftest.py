"""Pipelines on disk, and a machine without a network."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tiny_pipelines

MAKERS: dict[str, Callable[[], Any]] = {
    "sd1": tiny_pipelines.stable_diffusion,
    "sd2": lambda: tiny_pipelines.stable_diffusion("v_prediction", "!"),
    "sample": lambda: tiny_pipelines.stable_diffusion("sample"),
    "sdxl": tiny_pipelines.stable_diffusion_xl,
    "sd3": tiny_pipelines.stable_diffusion_3,
    "if": tiny_pipelines.deepfloyd,
}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that asks for anything outside this machine, even if the answer is ignored."""
    pytest.importorskip("diffusers")
    asked: list[object] = []
    connect, resolve = socket.socket.connect, socket.getaddrinfo

    def connected(self: socket.socket, address: Any) -> Any:
        if self.family != socket.AF_UNIX and address[0] != "127.0.0.1":
            asked.append(address)
            raise OSError("no network in this test")
        return connect(self, address)

    def resolved(host: Any, *rest: Any, **named: Any) -> Any:
        if host != "127.0.0.1":
            asked.append(host)
            raise OSError("no network in this test")
        return resolve(host, *rest, **named)

    monkeypatch.setattr(socket.socket, "connect", connected)
    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    yield
    assert asked == []


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``device=auto`` be the CPU, whatever the machine has."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what makes a pipeline by name, once, and returns its folder; not to be changed."""
    root = tmp_path_factory.mktemp("pipelines")

    def folder(name: str) -> Path:
        if not (root / name).is_dir():
            tiny_pipelines.saved(MAKERS[name], root / name)
        return root / name

    return folder


@pytest.fixture
def copied(made: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return what returns a pipeline's folder that may be changed."""

    def folder(name: str = "sd1") -> Path:
        return Path(shutil.copytree(made(name), tmp_path / name))

    return folder
