"""Pipelines on disk, and a machine without a network."""

import shutil
import socket
from pathlib import Path

import pytest
import torch

import tiny_pipelines


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """Fail a test that asks for anything outside this machine, even if the answer is ignored."""
    asked = []
    resolve = socket.getaddrinfo

    def resolved(host, *rest, **named):
        if host != "127.0.0.1":
            asked.append(host)
            raise OSError("no network in this test")
        return resolve(host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    yield
    assert asked == []


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch):
    """Let ``device=auto`` be the CPU, whatever the machine has."""
    torch.set_num_threads(1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Return what makes a pipeline by name, once, and returns its folder; not to be changed."""
    root = tmp_path_factory.mktemp("pipelines")

    def folder(name):
        if not (root / name).is_dir():
            tiny_pipelines.saved(tiny_pipelines.MAKERS[name], root / name)
        return root / name

    return folder


@pytest.fixture
def copied(made, tmp_path):
    """Return what returns a pipeline's folder that may be changed."""

    def folder(name="sd1"):
        return Path(shutil.copytree(made(name), tmp_path / name))

    return folder
