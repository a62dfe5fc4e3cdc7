"""Which other files an ONNX file keeps weights in, read from its bytes without any library.

A model over 2 GB, or one from the newer exporter of torch, has its tensors in files beside it.
They are part of the encoder's digest, so their names must be known. An ONNX file is a protocol
buffer (github.com/onnx/onnx, onnx.proto); only the fields on the way to a tensor are followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

#: Fields of each message that lead to tensors: message -> field number -> message.
_WAYS: Final[Mapping[str, Mapping[int, str]]] = {
    "Model": {7: "Graph", 25: "Function"},
    "Function": {7: "Node"},
    "Graph": {1: "Node", 5: "Tensor", 15: "SparseTensor"},
    "Node": {5: "Attribute"},
    "Attribute": {
        **{5: "Tensor", 10: "Tensor", 6: "Graph", 11: "Graph"},
        **{22: "SparseTensor", 23: "SparseTensor"},
    },
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
    "Tensor": {13: "Entry"},
}

#: Graphs may lie inside graphs; no honest file goes deeper.
_DEEPEST: Final = 100


def external_files(model: memoryview) -> tuple[str, ...]:
    """Return the names of the files that hold tensors of a model, sorted, as it states them.

    Args:
        model: the bytes of an ONNX file.

    Raises:
        ValueError: it is no protocol buffer.

    >>> external_files(memoryview(b""))
    ()
    """
    return tuple(sorted(set(_names(model, "Model", 0))))


def _names(message: memoryview, kind: str, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise ValueError("its graphs are nested too deeply")
    ways = _WAYS[kind]
    for number, value in _fields(message):
        inner = ways.get(number)
        if inner == "Entry":
            entry = dict(_fields(value))
            if bytes(entry.get(1, b"")) == b"location":
                yield str(bytes(entry.get(2, b"")), "utf-8")
        elif inner is not None:
            yield from _names(value, inner, depth + 1)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield number and content of the fields that have a length; the others say nothing here."""
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        field, kind = key >> 3, key & 7
        if kind == 0:
            _, at = _number(message, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind == 2:
            length, at = _number(message, at)
            if at + length > len(message):
                raise ValueError("it ends too early")
            yield field, message[at : at + length]
            at += length
        else:
            raise ValueError(f"a field of kind {kind}")


def _number(message: memoryview, at: int) -> tuple[int, int]:
    """Return the number of variable length at a byte, and the byte after it."""
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number does not end")
