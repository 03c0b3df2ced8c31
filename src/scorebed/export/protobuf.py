"""An ONNX model as bytes: the few messages of onnx.proto that a graph of tensors needs, in
protobuf's wire format.

A field is a varint (number · 8 + kind), then a varint (kind 0) or a length and that many bytes
(kind 2); a repeated field comes several times. The numbers below are those of the fields and of the
enumerations in onnx.proto."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

OPSET, IR = 18, 8  # IR version 8 is the first with operator set 18
ELEMENTS = {"float32": 1, "int32": 6, "int64": 7, "bool": 9, "float64": 11}
INT, INTS = 2, 7

Attribute: TypeAlias = int | tuple[int, ...]


class Value(NamedTuple):
    """A named array of a graph: an input or an output."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Node(NamedTuple):
    """One operator."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]


def model(
    name: str,
    nodes: Sequence[Node],
    constants: Mapping[str, np.ndarray],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    *,
    producer: tuple[str, str],
) -> bytes:
    """A whole file."""
    graph = b"".join(
        [
            *(_block(1, _node(node)) for node in nodes),
            _text(2, name),
            *(_block(5, _tensor(name, array)) for name, array in constants.items()),
            *(_block(11, _value(value)) for value in inputs),
            *(_block(12, _value(value)) for value in outputs),
        ]
    )
    opset = _text(1, "") + _number(2, OPSET)
    return (
        _number(1, IR)
        + _text(2, producer[0])
        + _text(3, producer[1])
        + _block(7, graph)
        + _block(8, opset)
    )


def _node(node: Node) -> bytes:
    names = [_text(1, name) for name in node.inputs] + [_text(2, name) for name in node.outputs]
    attributes = [_block(5, _attribute(name, value)) for name, value in node.attributes.items()]
    return b"".join([*names, _text(4, node.op), *attributes])


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, INT)
    return _text(1, name) + b"".join(_number(8, item) for item in value) + _number(20, INTS)


def _tensor(name: str, array: np.ndarray) -> bytes:
    dims = b"".join(_number(1, size) for size in array.shape)
    raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
    return dims + _number(2, ELEMENTS[array.dtype.name]) + _text(8, name) + _block(9, raw)


def _value(value: Value) -> bytes:
    shape = b"".join(_block(1, _number(1, size)) for size in value.shape)
    return _text(1, value.name) + _block(
        2, _block(1, _number(1, ELEMENTS[value.dtype]) + _block(2, shape))
    )


def _number(field: int, value: int) -> bytes:
    return _varint(8 * field) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _block(field, value.encode())


def _block(field: int, data: bytes) -> bytes:
    return _varint(8 * field + 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """Seven bits to a byte, the lowest first; negative numbers as 64-bit ones."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
